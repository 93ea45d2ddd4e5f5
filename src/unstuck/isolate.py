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
from itertools import count
from multiprocessing import spawn
from typing import Any

import msgspec

from unstuck import frames, kin
from unstuck.context import Context
from unstuck.errors import UnstuckError
from unstuck.handler import Handler
from unstuck.isolated import Ending, Order, Remote, Report, apply
from unstuck.telemetry import JsonLines

log = logging.getLogger("unstuck.worker")

DEAF = 2.0  # seconds between the request to end and the kill
_PREPARED = ("sys_path", "sys_argv", "orig_dir", "dir")
_MAIN = ("init_main_from_name", "init_main_from_path")


class Crashed(UnstuckError):
    """A child process died without an answer. ``cause`` tells by which signal or exit code."""

    def __init__(self, cause: str, pid: int) -> None:
        super().__init__(f"the process of the job (pid {pid}) died: {cause}")
        self.cause = cause
        self.pid = pid


class Isolation:
    """Starts the nursery when the first job needs it. All of it belongs to one event loop.

    ``with_main``: handlers live in the program's main module, so the nursery has to import that, too.
    """

    def __init__(self, *, with_main: bool) -> None:
        self._with_main = with_main
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()
        self._numbers: Iterator[int] = count(1)
        self._news: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._listening: asyncio.Task[None] | None = None

    async def run(self, handler: Handler, context: Context) -> Any:
        """The handler's result; raises Remote for what it raised and Crashed if its process died."""
        control = await self._nursery()
        number = next(self._numbers)
        news = self._news[number] = asyncio.Queue()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                message = {"number": number, "place": handler.place, "task": handler.task}
                await asyncio.to_thread(socket.send_fds, control, [frames.pack(message)], [theirs.fileno()])
            return await self._attend(ours, number, news, context)
        finally:
            self._news.pop(number, None)
            ours.close()

    async def close(self) -> None:
        """End the nursery, and with it whatever still runs there."""
        if self._process is None:
            return
        self._control.close()
        if self._listening:
            self._listening.cancel()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, DEAF)
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._process = None

    async def _attend(
        self, sock: socket.socket, number: int, news: asyncio.Queue[dict[str, Any]], context: Context
    ) -> Any:
        sock.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        try:
            order = Order(context.job, context.seconds, context.stages)
            writer.write(frames.pack(order))
            if "pid" not in (born := await news.get()):
                raise Crashed(_cause(born["exit"]), 0)
            pid = born["pid"]
            while text := await frames.read(reader):
                report = msgspec.json.decode(text, type=Report)
                if report.word == "result":
                    return None if report.value is None else msgspec.Raw(report.value.encode())
                if report.word == "raised":
                    raise Remote(msgspec.convert(report.value, Ending))
                apply(report, context)
            ended = await news.get()
            raise Crashed(_cause(ended.get("exit")), pid)
        except asyncio.CancelledError:
            await self._kill(number, news)
            raise
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _kill(self, number: int, news: asyncio.Queue[dict[str, Any]]) -> None:
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                self._control.sendall(frames.pack({"kill": number, "signal": int(signal_)}))
            with suppress(TimeoutError):
                async with asyncio.timeout(DEAF):
                    while "exit" not in await news.get():
                        pass
                return

    async def _nursery(self) -> socket.socket:
        async with self._starting:
            if self._process is None or self._process.poll() is not None:
                self._start()
            return self._control

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            # From this thread, because the nursery ends with the thread that started it.
            argv = [sys.executable, "-m", "unstuck.nursery", str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self._control.sendall(frames.pack({"log_level": _log_level(), "process": _prepared(self._with_main)}))
        self._listening = asyncio.create_task(self._listen(self._control.dup()))

    async def _listen(self, sock: socket.socket) -> None:
        """Hand the nursery's news to those who wait for them; if it dies, so have all of its children."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        try:
            while text := await frames.read(reader):
                said = msgspec.json.decode(text)
                if said.get("left"):
                    log.warning("a job left processes behind: they were killed")
                if news := self._news.get(said["number"]):
                    news.put_nowait(said)
        finally:
            writer.close()
            for news in self._news.values():
                news.put_nowait({"exit": None})


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
