"""The nursery: a process that has imported the app's code and forks a child for each isolated job.

Started by :mod:`unstuck.isolate` as ``python -m unstuck.nursery FD PARENT``. It never runs a handler itself,
so it always listens: when its worker dies, or tells it to, it kills children with all that they started.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
from importlib import import_module
from multiprocessing import spawn
from operator import attrgetter
from types import FrameType
from typing import Any, NoReturn

import msgspec

from unstuck import kin
from unstuck.frames import pack, receive
from unstuck.handler import Handler
from unstuck.isolated import Order, perform_alone, refuse
from unstuck.telemetry import log_json


class Nursery:
    """Children by their pid, each with the number under which the worker asked for it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._jobs: dict[int, int] = {}
        self._handlers: dict[tuple[str, str, str], Handler] = {}
        self._ears, self._mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Until the worker is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker to judge
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
            self._end()
        message = msgspec.json.decode(text)
        if "kill" in message:
            for pid in [pid for pid, number in self._jobs.items() if number == message["kill"]]:
                _signal_group(pid, message["signal"])
        else:
            self._bear(message, fds[0])

    def _bear(self, message: dict[str, Any], fd: int) -> None:
        """Fork a child for one job. What cannot be imported is told by the child, too."""
        module, name = message["place"]
        found = self._find(module, name, message["task"])
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._live(found, fd, parent)
        os.close(fd)
        self._jobs[pid] = message["number"]
        self._control.sendall(pack({"number": message["number"], "pid": pid}))

    def _live(self, found: Handler | Exception, fd: int, parent: int) -> NoReturn:
        """The child: one job, then the end."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            kin.die_with_parent(signal.SIGKILL, parent)
            self._control.close()
            gc.unfreeze()
            with socket.socket(fileno=fd) as sock:
                order = msgspec.json.decode(receive(sock)[0], type=Order)
                if isinstance(found, Handler):
                    perform_alone(found, order, sock)
                else:
                    refuse(found, order, sock)
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _find(self, module: str, name: str, task: str) -> Handler | Exception:
        place = (module, name, task)
        if place not in self._handlers:
            try:
                found = attrgetter(name)(import_module(module))
                handler = getattr(found, "handler", None)  # a Task has one; else it is the bare function
                self._handlers[place] = handler if isinstance(handler, Handler) else Handler(found, task)
            except Exception as error:  # noqa: BLE001 - the job's failure, not ours
                return error
            gc.freeze()  # pages that nobody touches stay shared with the children
        return self._handlers[place]

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
            number = self._jobs.pop(pid)
            left |= bool(kin.end_strays(set(self._jobs)))
            code = os.waitstatus_to_exitcode(status)
            self._control.sendall(pack({"number": number, "exit": code, "left": left}))

    def _end(self, _number: int = 0, _frame: FrameType | None = None) -> NoReturn:
        for pid in self._jobs:
            kin.end_group(pid)
        kin.end_strays(set())
        os._exit(0)


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
        spawn.prepare(prepared["process"])
        try:
            Nursery(control).serve()
        except (BrokenPipeError, ConnectionResetError):  # the worker went while we told it something
            os._exit(0)


if __name__ == "__main__":
    main()
