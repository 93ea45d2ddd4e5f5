"""Isolation: runs a job in a child process of its own, through a fork server that outlives single jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import spawn
from typing import Any

import msgspec

from unstuck.app.context import Context
from unstuck.app.handler import Handler, location
from unstuck.background import end
from unstuck.protocol.errors import Snooze, UnstuckError
from unstuck.recovery import processes
from unstuck.text.logs import JsonLines
from unstuck.worker.isolation import wire
from unstuck.worker.isolation.child import UNTIMELY, Order, Raised, Remote, Report, apply

log = logging.getLogger("unstuck.worker")

CANCEL_PATIENCE = 2.0  # seconds that a handler has to end when it is cancelled
_PREPARED = ("sys_path", "sys_argv", "orig_dir", "dir")
_MAIN = ("init_main_from_name", "init_main_from_path")
News = asyncio.Queue[dict[str, Any]]


class Crashed(UnstuckError):
    """A child process died without an answer. ``cause`` names the signal or exit code."""

    def __init__(self, cause: str, pid: int) -> None:
        super().__init__(f"the process of the job (pid {pid}) died: {cause}")
        self.cause = cause
        self.pid = pid


@dataclass(slots=True, eq=False)
class ServerProcess:
    """The fork server as its worker sees it: the process, its socket, and the queues of those that wait for its messages."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    news: dict[int, News] = field(default_factory=dict)
    listening: asyncio.Task[None] | None = None
    loaded: bool = False  # with all handlers
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    finishing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None and self.listening is not None and not self.listening.done()

    async def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Whole, also if the sender is cancelled meanwhile, or not at all. The descriptor goes with the first byte."""
        text = wire.pack(message)
        async with self.sending:
            if self.finishing is not None:  # its sender was cancelled
                await asyncio.shield(self.finishing)
            sent = await self._offer(text, fd)
            self.finishing = asyncio.create_task(self._finish(text[sent:]))
            await asyncio.shield(self.finishing)

    async def _finish(self, text: bytes) -> None:
        with suppress(OSError):  # it is gone, which the reader notices
            while text:
                text = text[await self._offer(text) :]

    async def _offer(self, text: bytes, fd: int | None = None) -> int:
        """How many bytes the socket took, once it takes any."""
        while True:
            try:
                return self.control.send(text) if fd is None else socket.send_fds(self.control, [text], [fd])
            except BlockingIOError:  # it is still starting, or has much to do
                await asyncio.sleep(0.01)

    async def listen(self) -> None:
        """Hand its messages to those that wait for them; if it dies, so have all of its children."""
        reader, writer = await asyncio.open_unix_connection(sock=self.control.dup())
        try:
            while text := await wire.read(reader):
                message = msgspec.json.decode(text)
                if message.get("left"):
                    log.warning("a job left processes behind: they were killed")
                if news := self.news.get(message["number"]):
                    news.put_nowait(message)
        finally:
            writer.close()
            self.control.close()
            for news in self.news.values():
                news.put_nowait({"exit": None})

    async def kill(self, number: int) -> None:
        """End a job's processes; returns when they have ended, or when nobody will ever report it."""
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(CANCEL_PATIENCE):
                    await self.send({"kill": number, "signal": int(signal_)})
                    while "exit" not in await self.news[number].get():
                        pass
                return


class Isolation:
    """Starts the fork server when the first job needs it. All of it belongs to one event loop.

    What isolated handlers enqueue themselves goes to the same ``store``. ``soon``: jobs that are always isolated are
    expected.
    """

    def __init__(self, store: str, handlers: Sequence[Handler], *, soon: bool = False) -> None:
        self._soon = soon
        self._store = store
        self._handlers = [handler for handler in handlers if not handler.hidden]
        self._current: ServerProcess | None = None
        self._wrong = ""  # with our main module
        self._starting, self._warming = asyncio.Lock(), asyncio.Lock()
        self._numbers: Iterator[int] = count(1)

    async def begin(self) -> str:
        """Have a fork server before the first job if jobs need one soon; returns why it cannot have them."""
        if self._soon:
            await self.warm()
        return self._wrong if any(handler.isolate and _in_main(handler) for handler in self._handlers) else ""

    async def warm(self) -> None:
        """Have a fork server that has imported all handlers."""
        async with self._warming:
            server = await self._running_server()
            if not server.loaded:
                await self._load(server)

    async def _load(self, server: ServerProcess) -> None:
        number = next(self._numbers)
        news = server.news[number] = News()
        try:
            with suppress(OSError):
                await server.send({"number": number, "load": [_order(one) for one in self._handlers]})
                answer = await news.get()
                server.loaded, self._wrong = "loaded" in answer, answer.get("wrong", "")
        finally:
            del server.news[number]

    async def run(self, handler: Handler, context: Context) -> Any:
        """The handler's result; raises Remote for what it raised and Crashed if its process died."""
        server = await self._running_server()
        number = next(self._numbers)
        server.news[number] = News()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                try:
                    await server.send({"number": number} | _order(handler), theirs.fileno())
                except OSError:
                    raise Crashed(_cause(None), 0) from None
            return await _attend(ours, server, number, context)
        finally:
            server.news.pop(number, None)
            ours.close()

    async def close(self) -> None:
        """End the fork server, and with it whatever still runs there."""
        if self._current is None:
            return
        process = self._current.process
        await end([self._current.listening])
        self._current.control.close()  # it may have been cancelled before it began
        await _end(process)
        self._current = None

    async def _running_server(self) -> ServerProcess:
        async with self._starting:
            if self._current is None or not self._current.alive:
                if self._current is not None:  # it hung up, and is perhaps still on its way out
                    await _end(self._current.process)
                self._current = self._start()
            return self._current

    def _start(self) -> ServerProcess:
        control, theirs = socket.socketpair()
        # Until it is ready for it: some programs that stop a service signal all of its processes alike, and the worker decides.
        signal.pthread_sigmask(signal.SIG_BLOCK, UNTIMELY)
        try:
            with theirs:
                # From this thread, because the fork server ends with the thread that started it.
                argv = [
                    sys.executable,
                    "-m",
                    "unstuck.worker.isolation.forkserver",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ]
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, UNTIMELY)
        with suppress(BrokenPipeError):  # then it is known to be dead before long
            control.sendall(wire.pack(self._prepared()))
        control.setblocking(False)
        server = ServerProcess(process, control)
        server.listening = asyncio.create_task(server.listen())
        return server

    def _prepared(self) -> dict[str, Any]:
        """What a fresh interpreter needs to import what we could, and our main module if handlers live there."""
        known = spawn.get_preparation_data("unstuck-fork-server")
        main = _MAIN if any(map(_in_main, self._handlers)) else ()
        process = {name: known[name] for name in (*_PREPARED, *main) if name in known}
        return {"log_level": _log_level(), "store": self._store, "process": process}


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a fork server whose worker has hung up; one that does not end by itself is killed."""
    if not await _gone(process, CANCEL_PATIENCE):
        process.kill()
        await _gone(process, CANCEL_PATIENCE)


async def _gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends within so many seconds. Waits without a thread: handlers may have taken all there are."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:  # noqa: ASYNC110 - a process sets no event
        await asyncio.sleep(0.01)
    return process.returncode is not None


async def _attend(sock: socket.socket, server: ServerProcess, number: int, context: Context) -> Any:
    """Exchange messages with a child until it has reported how it ended."""
    sock.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    news = server.news[number]
    try:
        permit = context.permit
        writer.write(wire.pack(Order(context.job, context.seconds, context.stages, rated=permit is not None)))
        if "pid" not in (born := await news.get()):
            if "refused" in born:
                log.warning("no process could be started for a job: %s", born["refused"])
                raise Snooze(1.0)
            raise Crashed(_cause(born["exit"]), 0)
        while text := await wire.read(reader):
            report = msgspec.json.decode(text, type=Report)
            if report.word == "result":
                return None if report.value is None else msgspec.Raw(report.value.encode())
            if report.word == "raised":
                raise Remote(msgspec.convert(report.value, Raised))
            if permit is not None and report.word in ("ready", "late"):
                if report.word == "late":
                    permit.late()
                writer.write(wire.pack(await permit.ready()))
            else:
                apply(report, context)
        if (code := (await news.get()).get("exit")) is None:
            processes.kill_group(born["pid"])  # the fork server cannot do it any more
        raise Crashed(_cause(code), born["pid"])
    except (Remote, Crashed, Snooze):
        raise
    except (
        BaseException
    ):  # cancelled, or it sent what cannot be understood: nobody reads its messages any more
        await server.kill(number)
        raise
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _in_main(handler: Handler) -> bool:
    named = (*handler.errors.on, *handler.errors.never)
    return "__main__" in {handler.location[0], *(kind.__module__ for kind in named)}


def _order(handler: Handler) -> dict[str, Any]:
    return {
        "place": handler.location,
        "task": handler.task,
        "batch": handler.batch,
        "strict": handler.strict,
        "errors": [[location(kind) for kind in kinds] for kinds in handler.errors],
    }


def _log_level() -> str:
    """The level at which this process logs JSON lines, if it does."""
    root = logging.getLogger()
    ours = any(isinstance(handler.formatter, JsonLines) for handler in root.handlers)
    return logging.getLevelName(root.level) if ours else ""


def _cause(code: int | None) -> str:
    return "the fork server died with it" if code is None else processes.cause_of_death(code)
