"""The nursery: a process that has imported the app's code and forks a child for each isolated job.

Started by :mod:`unstuck.isolate` as ``python -m unstuck.nursery FD PARENT``. It never runs a handler itself,
so it always listens: when its worker dies, or tells it to, it kills children with all that they started.
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

from unstuck import kin
from unstuck.frames import pack, receive
from unstuck.handler import Handler
from unstuck.isolated import UNTIMELY, Lifespan, Order, importing, perform_alone, refuse
from unstuck.task import Task
from unstuck.telemetry import log_json

log = logging.getLogger("unstuck.worker")


@dataclass(frozen=True, slots=True)
class Born:
    """The number under which the worker asked for a child, and a byte that tells the child to end."""

    number: int
    doomed: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 1))


class Home(NamedTuple):
    """A handler, and what has to be entered before it is called."""

    handler: Handler
    lifespans: Sequence[Lifespan]


class Nursery:
    """Children by their pid."""

    def __init__(self, control: socket.socket, parent: int, store: str) -> None:
        self._control = control
        self._parent = parent
        self._jobs: dict[int, Born] = {}
        self._store = store
        self._homes: dict[tuple[str, str, str], Home] = {}
        self._no_main: Exception | None = None
        self._ears, self._mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def prepare(self, process: dict[str, Any]) -> None:
        """Be like the worker's process. What is wrong with its main module is the failure of handlers that live there."""
        importing.set(True)
        try:
            spawn.prepare(process)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a program does when it is imported
            self._no_main = error if isinstance(error, Exception) else ImportError("it ends the process")
            log.error("isolated jobs cannot import the main module: %s", self._no_main)  # noqa: TRY400 - each job tells more

    def serve(self) -> None:
        """Until the worker is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._orphaned)
        for number in (signal.SIGINT, signal.SIGHUP):  # for the worker to judge
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, UNTIMELY)
        signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as ready:
            ready.register(self._control, selectors.EVENT_READ)
            ready.register(self._ears, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._control:
                        self._listen()
                    else:
                        os.read(self._ears, 1024)
                self._bury()

    def _listen(self) -> None:
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
            self._tell(number=message["number"], loaded=True, wrong=str(self._no_main or ""))
        elif fds:
            self._bear(message, fds[0])
        else:  # too many files are open for another
            self._tell(number=message["number"], refused="no file descriptor is left")

    def _bear(self, message: dict[str, Any], fd: int) -> None:
        """Fork a child for one job. What cannot be imported is told by the child, too."""
        found = self._find(message)
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
            self._tell(number=born.number, pid=pid)
        except OSError as error:  # too many processes: this job has to wait, the others are not to blame
            self._tell(number=born.number, refused=str(error))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            os.close(fd)

    def _tell(self, **news: Any) -> None:
        self._control.sendall(pack(news))

    def _live(self, found: Home | Exception, fd: int, parent: int, doomed: mmap.mmap) -> NoReturn:
        """The child: one job, then the end."""
        code = 1
        importing.set(False)
        try:
            os.setpgid(0, 0)
            kin.inherit_orphans()  # so that they are ended with this job, and not with another one
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, partial(_heed, doomed))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            kin.die_with_parent(signal.SIGKILL, parent)
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
                log.warning("a job's process cannot speak to its worker any more: %s", error)
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
                found = attrgetter(name)(import_module(module))
                if isinstance(found, Task):
                    found.app.url = self._store
                    self._homes[place] = Home(found.handler, found.app.lifespans)
                else:
                    self._homes[place] = Home(Handler(found, order["task"], batch=order["batch"]), ())
            except Exception as error:  # noqa: BLE001 - the job's failure, not ours
                return error
            gc.freeze()  # pages that nobody touches stay shared with the children
        return self._homes[place]

    def _bury(self) -> None:
        """Tell how children ended, and end what they left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._jobs:
                continue
            left = kin.end_group(pid)
            born = self._jobs.pop(pid)
            born.doomed.close()
            left |= bool(kin.end_strays(set(self._jobs)))
            code = os.waitstatus_to_exitcode(status)
            self._tell(number=born.number, exit=code, left=left)

    def _orphaned(self, _number: int, _frame: FrameType | None) -> None:
        """End if the worker is gone. Others may tell all processes of a service alike: the worker judges."""
        if os.getppid() != self._parent:
            self.end()

    def end(self) -> NoReturn:
        for pid in self._jobs:
            kin.end_group(pid)
        kin.end_strays(set())
        os._exit(0)


def _heed(doomed: mmap.mmap, number: int, _frame: FrameType | None) -> None:
    """In a child: end if the nursery says so; what comes from elsewhere is for the worker to judge."""
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
    kin.inherit_orphans()
    kin.die_with_parent(signal.SIGTERM, parent)
    with socket.socket(fileno=fd) as control:
        prepared = msgspec.json.decode(receive(control)[0])
        if prepared["log_level"]:
            log_json(prepared["log_level"])
        nursery = Nursery(control, parent, prepared["store"])
        nursery.prepare(prepared["process"])
        try:
            nursery.serve()
        except (BrokenPipeError, ConnectionResetError):  # the worker went while we told it something
            nursery.end()


if __name__ == "__main__":
    main()
