"""A PostgreSQL server of the bench's own: a child on a free port of this host, with its data in a folder that goes."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench.contestant import OUT

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
LONGEST_START = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """Runs from ``start`` to ``stop``, which removes all it had."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        binaries, user = _binaries(), _other_user()
        folder = self._folder(user)
        data, log = folder / "data", self._stack.enter_context((folder / "server.log").open("ab"))
        run: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": "/", "user": user}
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust"]
        subprocess.run([*initdb, "-E", "UTF8", "--no-locale"], check=True, **run)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(self.port), *options]
        # A session of its own: at Ctrl-C it is stopped after those that use it.
        self.process = subprocess.Popen(command, start_new_session=True, **run)
        self._stack.callback(self._end)
        self._wait(folder / "server.log")

    def stop(self) -> None:
        self._stack.close()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://bench@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run one statement by itself; the first value of its answer, if it has one."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return str(row[0]) if row else ""

    def create(self, database: str, template: str = "template1") -> None:
        """A new database in the place of any of that name."""
        strategy = "STRATEGY FILE_COPY" if self.version >= (15,) else ""
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" {strategy}')

    def rename(self, database: str, name: str) -> str:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        # Those who just left may still be on their way out.
        self.execute(
            f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
        )
        for attempt in range(50):
            try:
                self.execute(f'ALTER DATABASE "{database}" RENAME TO "{name}"')
                break
            except psycopg.errors.ObjectInUse:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        return name

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.execute("SHOW server_version").split()[0].split("."))

    def cpu(self) -> float:
        """Processor seconds of all its processes so far, those that ended included."""
        own = self.process.pid
        return seconds(own, waited=True) + sum(seconds(pid) for pid in _children(own))

    def _wait(self, log: Path) -> None:
        end = time.monotonic() + LONGEST_START
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"PostgreSQL does not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.1)
            else:
                return

    def _folder(self, user: str | None) -> Path:
        """Beside the other files, or where another user can reach it."""
        OUT.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="bench-", dir=None if user else OUT))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if user:
            shutil.chown(folder, user)
        return folder

    def _end(self) -> None:
        self.process.send_signal(signal.SIGINT)  # a fast shutdown
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()


def seconds(pid: int, *, waited: bool = False) -> float:
    """Processor seconds of a process, and of the children it ``waited`` for; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11 : 15 if waited else 13]) / _TICKS


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)


def _binaries() -> Path:
    """Of ``pg_config`` if the server is there, too, else the newest that Debian put aside."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if config := shutil.which("pg_config"):
        answer = subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True).stdout
        found.append(Path(answer.strip()))
    for folder in reversed(found):
        if (folder / "initdb").exists():
            return folder
    sys.exit("PostgreSQL is not here: install its server, on Debian with `apt-get install postgresql`")


def _other_user() -> str | None:
    """It refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
