"""Isolation: runs a job in a child process of its own, through a nursery that outlives single jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import spawn
from typing import Any

import msgspec

from unstuck import frames, kin
from unstuck.context import Context
from unstuck.errors import UnstuckError
from unstuck.handler import Handler
from unstuck.isolated import UNTIMELY, Ending, Order, Remote, Report, apply
from unstuck.telemetry import JsonLines

log = logging.getLogger("unstuck.worker")

DEAF = 2.0  # seconds between the request to end and the kill
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

    ``with_main``: handlers live in the program's main module, so the nursery has to import that, too.
    """

    def __init__(self, *, with_main: bool) -> None:
        self._with_main = with_main
        self._current: Nursery | None = None
        self._starting = asyncio.Lock()
        self._numbers: Iterator[int] = count(1)

    async def run(self, handler: Handler, context: Context) -> Any:
        """The handler's result; raises Remote for what it raised and Crashed if its process died."""
        nursery = await self._nursery()
        number = next(self._numbers)
        nursery.news[number] = News()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                message = {"number": number, "place": handler.place, "task": handler.task}
                try:
                    await nursery.send(message, theirs.fileno())
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
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, DEAF)
        process.kill()
        await asyncio.to_thread(process.wait)
        self._current = None

    async def _nursery(self) -> Nursery:
        async with self._starting:
            if self._current is None or not self._current.alive:
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
            control.sendall(frames.pack({"log_level": _log_level(), "process": _prepared(self._with_main)}))
        control.setblocking(False)
        nursery = Nursery(process, control)
        nursery.listening = asyncio.create_task(nursery.listen())
        return nursery


async def _attend(sock: socket.socket, nursery: Nursery, number: int, context: Context) -> Any:
    """Speak with a child until it has told how it ended."""
    sock.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    news = nursery.news[number]
    try:
        writer.write(frames.pack(Order(context.job, context.lease, context.stages)))
        if "pid" not in (born := await news.get()):
            raise Crashed(_cause(born["exit"]), 0)
        while text := await frames.read(reader):
            report = msgspec.json.decode(text, type=Report)
            if report.word == "result":
                return None if report.value is None else msgspec.Raw(report.value.encode())
            if report.word == "raised":
                raise Remote(msgspec.convert(report.value, Ending))
            apply(report, context)
        ended = await news.get()
        raise Crashed(_cause(ended.get("exit")), born["pid"])
    except (Remote, Crashed):
        raise
    except BaseException:  # cancelled, or it says what cannot be understood: nobody listens to it any more
        await nursery.kill(number)
        raise
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _prepared(with_main: bool) -> dict[str, Any]:
    """What a fresh interpreter needs to import what we could, and our main module if handlers live there."""
    known = spawn.get_preparation_data("unstuck-nursery")
    return {name: known[name] for name in (*_PREPARED, *(_MAIN if with_main else ())) if name in known}


def _log_level() -> str:
    """The level at which this process logs JSON lines, if it does."""
    root = logging.getLogger()
    ours = any(isinstance(handler.formatter, JsonLines) for handler in root.handlers)
    return logging.getLevelName(root.level) if ours else ""


def _cause(code: int | None) -> str:
    return "the nursery died with it" if code is None else kin.cause_of_death(code)
