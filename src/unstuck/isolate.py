"""Isolation: runs a job in a child process of its own, through a nursery that outlives single jobs."""

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

from unstuck import frames, kin
from unstuck.context import Context
from unstuck.errors import Snooze, UnstuckError
from unstuck.handler import Handler
from unstuck.isolated import UNTIMELY, Ending, Order, Remote, Report, apply
from unstuck.telemetry import JsonLines

log = logging.getLogger("unstuck.worker")

DEAF = 2.0  # seconds that a handler has to end when it is told to
_PREPARED = ("sys_path", "sys_argv", "orig_dir", "dir")
_MAIN = ("init_main_from_name", "init_main_from_path")
News = asyncio.Queue[dict[str, Any]]


class Crashed(UnstuckError):
    """A child process died without an answer. ``cause`` tells by which signal or exit code."""

    def __init__(self, cause: str, pid: int) -> None:
        super().__init__(f"the process of the job (pid {pid}) died: {cause}")
        self.cause = cause
        self.pid = pid


@dataclass(slots=True, eq=False)
class Nursery:
    """The process, how to speak to it, and who waits for its news."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    news: dict[int, News] = field(default_factory=dict)
    listening: asyncio.Task[None] | None = None
    loaded: bool = False  # with all handlers

    @property
    def alive(self) -> bool:
        return self.process.poll() is None and self.listening is not None and not self.listening.done()

    async def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        text = frames.pack(message)
        while True:  # short messages go out whole or not at all
            try:
                self.control.send(text) if fd is None else socket.send_fds(self.control, [text], [fd])
            except BlockingIOError:  # it is still starting, or has much to do
                await asyncio.sleep(0.01)
            else:
                return

    async def listen(self) -> None:
        """Hand its news to those who wait for them; if it dies, so have all of its children."""
        reader, writer = await asyncio.open_unix_connection(sock=self.control.dup())
        try:
            while text := await frames.read(reader):
                said = msgspec.json.decode(text)
                if said.get("left"):
                    log.warning("a job left processes behind: they were killed")
                if news := self.news.get(said["number"]):
                    news.put_nowait(said)
        finally:
            writer.close()
            self.control.close()
            for news in self.news.values():
                news.put_nowait({"exit": None})

    async def kill(self, number: int) -> None:
        """End a job's processes; returns when they have, or when nobody will ever tell."""
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(DEAF):
                    await self.send({"kill": number, "signal": int(signal_)})
                    while "exit" not in await self.news[number].get():
                        pass
                return


class Isolation:
    """Starts the nursery when the first job needs it. All of it belongs to one event loop.

    What isolated handlers enqueue themselves goes to the same ``store``.
    """

    def __init__(self, store: str, handlers: Sequence[Handler]) -> None:
        self._store = store
        self._handlers = [handler for handler in handlers if handler.importable]
        self._current: Nursery | None = None
        self._wrong = ""  # with our main module
        self._starting, self._warming = asyncio.Lock(), asyncio.Lock()
        self._numbers: Iterator[int] = count(1)

    async def begin(self) -> str:
        """Have a nursery before the first job if handlers always need one; answers why it cannot have them."""
        if any(handler.isolate for handler in self._handlers):
            await self.warm()
        return self._wrong if any(handler.isolate and _in_main(handler) for handler in self._handlers) else ""

    async def warm(self) -> bool:
        """Have a nursery that has imported all handlers; true if that had to be waited for."""
        if self._current is not None and self._current.alive and self._current.loaded:
            return False
        async with self._warming:
            nursery = await self._nursery()
            if not nursery.loaded:
                await self._load(nursery)
        return True

    async def _load(self, nursery: Nursery) -> None:
        number = next(self._numbers)
        news = nursery.news[number] = News()
        try:
            with suppress(OSError):
                await nursery.send({"number": number, "load": [_order(one) for one in self._handlers]})
                told = await news.get()
                nursery.loaded, self._wrong = "loaded" in told, told.get("wrong", "")
        finally:
            del nursery.news[number]

    async def run(self, handler: Handler, context: Context) -> Any:
        """The handler's result; raises Remote for what it raised and Crashed if its process died."""
        nursery = await self._nursery()
        number = next(self._numbers)
        nursery.news[number] = News()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                try:
                    await nursery.send({"number": number} | _order(handler), theirs.fileno())
                except OSError:
                    raise Crashed(_cause(None), 0) from None
            return await _attend(ours, nursery, number, context)
        finally:
            nursery.news.pop(number, None)
            ours.close()

    async def close(self) -> None:
        """End the nursery, and with it whatever still runs there."""
        if self._current is None:
            return
        process = self._current.process
        if self._current.listening:
            self._current.listening.cancel()
            await asyncio.wait([self._current.listening])
        self._current.control.close()  # it may have been cancelled before it began
        await _end(process)
        self._current = None

    async def _nursery(self) -> Nursery:
        async with self._starting:
            if self._current is None or not self._current.alive:
                if self._current is not None:  # it hung up, and is perhaps still on its way out
                    await _end(self._current.process)
                self._current = self._start()
            return self._current

    def _start(self) -> Nursery:
        control, theirs = socket.socketpair()
        # Until it is ready for it: some who stop a service tell all of its processes alike, and we judge.
        signal.pthread_sigmask(signal.SIG_BLOCK, UNTIMELY)
        try:
            with theirs:
                # From this thread, because the nursery ends with the thread that started it.
                argv = [sys.executable, "-m", "unstuck.nursery", str(theirs.fileno()), str(os.getpid())]
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, UNTIMELY)
        with suppress(BrokenPipeError):  # then it is known to be dead before long
            control.sendall(frames.pack(self._prepared()))
        control.setblocking(False)
        nursery = Nursery(process, control)
        nursery.listening = asyncio.create_task(nursery.listen())
        return nursery

    def _prepared(self) -> dict[str, Any]:
        """What a fresh interpreter needs to import what we could, and our main module if handlers live there."""
        known = spawn.get_preparation_data("unstuck-nursery")
        main = _MAIN if any(map(_in_main, self._handlers)) else ()
        process = {name: known[name] for name in (*_PREPARED, *main) if name in known}
        return {"log_level": _log_level(), "store": self._store, "process": process}


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a nursery that has nobody to speak to; one that does not end by itself is killed."""
    if not await _gone(process, DEAF):
        process.kill()
        await _gone(process, DEAF)


async def _gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends within so many seconds. Waits without a thread: handlers may have taken all there are."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:  # noqa: ASYNC110 - a process rings no bell
        await asyncio.sleep(0.01)
    return process.returncode is not None


async def _attend(sock: socket.socket, nursery: Nursery, number: int, context: Context) -> Any:
    """Speak with a child until it has told how it ended."""
    sock.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    news = nursery.news[number]
    try:
        writer.write(frames.pack(Order(context.job, context.seconds, context.stages)))
        if "pid" not in (born := await news.get()):
            if "refused" in born:
                log.warning("no process could be started for a job: %s", born["refused"])
                raise Snooze(1.0)
            raise Crashed(_cause(born["exit"]), 0)
        while text := await frames.read(reader):
            report = msgspec.json.decode(text, type=Report)
            if report.word == "result":
                return None if report.value is None else msgspec.Raw(report.value.encode())
            if report.word == "raised":
                raise Remote(msgspec.convert(report.value, Ending))
            apply(report, context)
        if (code := (await news.get()).get("exit")) is None:
            kin.end_group(born["pid"])  # the nursery cannot do it any more
        raise Crashed(_cause(code), born["pid"])
    except (Remote, Crashed, Snooze):
        raise
    except BaseException:  # cancelled, or it says what cannot be understood: nobody listens to it any more
        await nursery.kill(number)
        raise
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _in_main(handler: Handler) -> bool:
    return handler.place[0] == "__main__"


def _order(handler: Handler) -> dict[str, Any]:
    return {"place": handler.place, "task": handler.task, "batch": handler.batch}


def _log_level() -> str:
    """The level at which this process logs JSON lines, if it does."""
    root = logging.getLogger()
    ours = any(isinstance(handler.formatter, JsonLines) for handler in root.handlers)
    return logging.getLevelName(root.level) if ours else ""


def _cause(code: int | None) -> str:
    return "the nursery died with it" if code is None else kin.cause_of_death(code)
