"""Private servers for tests: started on a free port, paused, killed, and restarted on the same port and data."""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Self

import pytest

from support.processes import Child
from support.waiting import tail, until

TRIES = 5
STARTED: set[str] = set()
"""The names of the servers that ran."""
IN_USE = "(?i)address (is )?already in use|EADDRINUSE"


def missing(what: str, install: str) -> NoReturn:
    """Skip the test, or the module, that needs ``what``; in CI, where nothing may be missing, fail it."""
    reason = f"{what} is missing; to run this test: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """What several processes would fetch into one place at the same time, one does while the others wait."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    """A port nobody listens on now, and none that the system gives to a client: a server that is down for a while
    finds it free again. Somebody else may still take it first."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Server:
    """A server as a direct child, with its data in ``folder/data`` and its log in ``folder/server.log``.

    ``command(port, data_dir)`` is what to run in the foreground; ``ready(port)`` says whether it answers, and
    may raise OSError for no. ``data_dir`` is there before the first start and can be filled by then. ``user``
    is who runs it and owns its data, for servers that refuse root.
    Everything blocks: beside a running event loop, call through ``asyncio.to_thread``.
    """

    name = ""
    """Product and version, of one that the report is to name."""

    def __init__(
        self,
        command: Callable[[int, Path], Sequence[str]],
        ready: Callable[[int], bool],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        timeout: float = 20.0,
        user: str | None = None,
    ) -> None:
        self.port = 0
        self.log = folder / "server.log"
        self.data_dir = folder / "data"
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user is not None:
            shutil.chown(self.data_dir, user)
        self._command = command
        self._ready = ready
        self._env = env
        self._stop_signal = stop_signal
        self._timeout = timeout
        self._user = user
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    @property
    def child(self) -> Child:
        """The server's process."""
        assert self._child is not None, "the server is not running: start() it first"
        return self._child

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    def start(self) -> None:
        """Start and wait until it is ready: the first time on a free port, then on the same one again."""
        assert not self.running, f"{self.child} is running already"
        for _ in range(TRIES):
            port = self.port or free_port()
            if self._starts_on(port):
                self.port = port
                STARTED.update({self.name} - {""})
                return
        raise AssertionError(f"{TRIES} times the server found its port taken\n{tail(self.log)}")

    def stop(self) -> int:
        """Ask it to end, wait until it has, and return its exit code."""
        child = self.child
        child.resume("family")  # paused, it would not hear
        child.terminate(self._stop_signal)
        try:
            return child.wait(self._timeout)
        finally:
            self.kill9()

    def kill9(self) -> None:
        """SIGKILL for all its processes at once, as in a crash of the machine; harmless if it is down."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def restart(self) -> None:
        """Stop it if it runs, and start it again: same port, same data."""
        if self.running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP for all its processes: connections stay open, nothing answers."""
        self.child.pause("family")

    def resume(self) -> None:
        self.child.resume("family")

    def _starts_on(self, port: int) -> bool:
        """Whether it did; False if somebody else took the port before."""
        self.kill9()  # what a server that died by itself left behind
        # In its data folder: where the tests run may be closed to another user.
        cwd = None if self._user is None else self.data_dir
        command = self._command(port, self.data_dir)
        child = self._child = Child(command, self.log, env=self._env, cwd=cwd, user=self._user)
        what = f"{child} to be ready on port {port}"
        try:
            until(lambda: self._serves(port) or child.exit_code is not None, self._timeout, what, self.log)
        except BaseException:
            self.kill9()
            raise
        if self.running:
            return True
        self.kill9()
        assert child.says(IN_USE), f"{child} ended with {child.exit_code}, not ready\n{tail(self.log)}"
        return False

    def _serves(self, port: int) -> bool:
        try:
            ready = self._ready(port)
        except OSError:
            return False
        # A stranger on our port may seem ready too, while our own server is still to find it taken.
        return ready and _theirs(port, self.child.family())


def _theirs(port: int, pids: set[int]) -> bool:
    """Whether one of these processes listens on the port; yes where the system does not tell."""
    try:
        if sys.platform == "linux":
            sockets = _listening(port)
            return not sockets or any(sockets & _open_files(pid) for pid in pids)
        lsof = ["lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:LISTEN"]
        listeners = subprocess.run(lsof, capture_output=True, text=True, check=True).stdout.split()
        return bool(pids & set(map(int, listeners)))
    except (OSError, subprocess.CalledProcessError):
        return True


def _listening(port: int) -> set[str]:
    """The port's listening sockets, as they are called among a process's open files."""
    rows = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    listen = "0A"
    return {f"socket:[{row[9]}]" for row in rows if row[3] == listen and row[1].endswith(f":{port:04X}")}


def _open_files(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError):  # the process ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed while we look
                found.add(str(file.readlink()))
    return found
