"""ForkServer: a process that has imported the app's code and forks a child for each isolated job.

Started by :mod:`unstuck.worker.isolation.parent` as ``python -m unstuck.worker.isolation.forkserver FD PARENT``. It never runs a handler itself,
so it always reads messages: when its worker dies, or orders it, it kills children with all that they started.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import spawn
from operator import attrgetter
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import msgspec

from unstuck.app.handler import Handler
from unstuck.app.hooks import Lifespan
from unstuck.app.task import Task
from unstuck.protocol.classify import TaskErrors
from unstuck.recovery import processes
from unstuck.text.logs import log_json
from unstuck.worker.isolation.child import UNTIMELY, Order, importing, perform_alone, refuse
from unstuck.worker.isolation.wire import pack, receive

log = logging.getLogger("unstuck.worker")


@dataclass(frozen=True, slots=True)
class Born:
    """The number under which the worker asked for a child, and a byte that is set when the child has to end."""

    number: int
    doomed: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 1))


class Home(NamedTuple):
    """A handler, and what has to be entered before it is called."""

    handler: Handler
    lifespans: Sequence[Lifespan]


class ForkServer:
    """Children by their pid."""

    def __init__(self, control: socket.socket, parent: int, store: str) -> None:
        self._control = control
        self._parent = parent
        self._jobs: dict[int, Born] = {}
        self._store = store
        self._homes: dict[tuple[str, str, str], Home] = {}
        self._no_main: Exception | None = None
        self._helpers: set[int] = set()  # what the app's code started when it was imported
        self._wake_reader, self._wake_writer = os.pipe()
        for end in (self._wake_reader, self._wake_writer):
            os.set_blocking(end, False)

    def prepare(self, process: dict[str, Any]) -> None:
        """Be like the worker's process. What is wrong with its main module is the failure of handlers that live there."""
        importing.set(True)
        try:
            spawn.prepare(process)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a program does when it is imported
            self._no_main = error if isinstance(error, Exception) else ImportError("it ends the process")
            log.error("isolated jobs cannot import the main module: %s", self._no_main)  # noqa: TRY400 - each job logs more
        self._spare()

    def serve(self) -> None:
        """Until the worker is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._orphaned)
        for number in (signal.SIGINT, signal.SIGHUP):  # the worker decides about them
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, UNTIMELY)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as ready:
            ready.register(self._control, selectors.EVENT_READ)
            ready.register(self._wake_reader, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._control:
                        self._receive()
                    else:
                        os.read(self._wake_reader, 1024)
                self._reap()

    def _receive(self) -> None:
        text, fds = receive(self._control)
        if not text:
            self.end()
        message = msgspec.json.decode(text)
        if "kill" in message:
            for pid in [pid for pid, born in self._jobs.items() if born.number == message["kill"]]:
                self._jobs[pid].doomed[0] = 1
                _signal_group(pid, message["signal"])
        elif "load" in message:
            for order in message["load"]:
                self._find(order)
            self._send(number=message["number"], loaded=True, wrong=str(self._no_main or ""))
        elif fds:
            self._bear(message, fds[0])
        else:  # too many files are open for another
            self._send(number=message["number"], refused="no file descriptor is left")

    def _bear(self, message: dict[str, Any], fd: int) -> None:
        """Fork a child for one job. A failed import is reported by the child, too."""
        found = self._find(message)
        self._spare()
        sys.stdout.flush()
        sys.stderr.flush()
        born = Born(message["number"])
        parent = os.getpid()
        # Until the child has its own mind about it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
            if pid == 0:
                self._live(found, fd, parent, born.doomed)
            self._jobs[pid] = born
            self._send(number=born.number, pid=pid)
        except OSError as error:  # too many processes: this job has to wait, the others are not to blame
            self._send(number=born.number, refused=str(error))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os.close(fd)

    def _send(self, **news: Any) -> None:
        self._control.sendall(pack(news))

    def _live(self, found: Home | Exception, fd: int, parent: int, doomed: mmap.mmap) -> NoReturn:
        """The child: one job, then the end."""
        code = 1
        importing.set(False)
        try:
            os.setpgid(0, 0)
            processes.inherit_orphans()  # so that they are ended with this job, and not with another one
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, partial(_heed, doomed))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            processes.die_with_parent(signal.SIGKILL, parent)
            self._control.close()
            gc.unfreeze()
            with socket.socket(fileno=fd) as sock:
                order = msgspec.json.decode(receive(sock)[0], type=Order)
                if isinstance(found, Home):
                    perform_alone(found.handler, found.lifespans, order, sock)
                else:
                    refuse(found, order, sock)
            code = 0
        except OSError as error:  # the handler closed what it should not have: then it ends without an answer
            with suppress(OSError):
                log.warning("a job's process cannot reach its worker any more: %s", error)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # the handler may have closed it
                    stream.flush()
            os._exit(code)

    def _find(self, order: dict[str, Any]) -> Home | Exception:
        """Import a handler, once. It may stand there as a Task, or as the bare function."""
        module, name = order["place"]
        place = (module, name, order["task"])
        if place not in self._homes:
            if module == "__main__" and self._no_main:
                return self._no_main
            try:
                found = _imported(module, name)
                if isinstance(found, Task):
                    found.app.url = self._store
                    self._homes[place] = Home(found.handler, found.app.lifespans)
                else:
                    errors = TaskErrors(
                        *(tuple(_imported(*kind) for kind in each) for each in order["errors"])
                    )
                    handler = Handler(
                        found, order["task"], batch=order["batch"], strict=order["strict"], errors=errors
                    )
                    self._homes[place] = Home(handler, ())
            except Exception as error:  # noqa: BLE001 - the job's failure, not ours
                return error
            gc.freeze()  # pages that nobody touches stay shared with the children
        return self._homes[place]

    def _spare(self) -> None:
        """While there is no job, all that runs below us was started by the app's code itself."""
        if not self._jobs:
            self._helpers = processes.descendants()

    def _reap(self) -> None:
        """Report how children ended, and kill what they left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._jobs:
                continue
            left = processes.kill_group(pid)
            born = self._jobs.pop(pid)
            born.doomed.close()
            left |= bool(processes.kill_strays(self._jobs.keys() | self._helpers))
            code = os.waitstatus_to_exitcode(status)
            self._send(number=born.number, exit=code, left=left)

    def _orphaned(self, _number: int, _frame: FrameType | None) -> None:
        """End if the worker is gone. Others may signal all processes of a service alike: the worker decides."""
        if os.getppid() != self._parent:
            self.end()

    def end(self) -> NoReturn:
        for pid in self._jobs:
            processes.kill_group(pid)
        processes.kill_strays(set())
        os._exit(0)


def _imported(module: str, name: str) -> Any:
    return attrgetter(name)(import_module(module))


def _heed(doomed: mmap.mmap, number: int, _frame: FrameType | None) -> None:
    """In a child: end if the fork server wants it; about signals from elsewhere the worker decides."""
    if doomed[0]:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:  # it has ended, or has not made its group yet
        try:
            os.kill(leader, number)
        except ProcessLookupError:
            return


def main() -> None:
    fd, parent = map(int, sys.argv[1:3])
    processes.inherit_orphans()
    processes.die_with_parent(signal.SIGTERM, parent)
    with socket.socket(fileno=fd) as control:
        prepared = msgspec.json.decode(receive(control)[0])
        if prepared["log_level"]:
            log_json(prepared["log_level"])
        server = ForkServer(control, parent, prepared["store"])
        server.prepare(prepared["process"])
        try:
            server.serve()
        except (BrokenPipeError, ConnectionResetError):  # the worker ended while we sent it something
            server.end()


if __name__ == "__main__":
    main()
