"""Standard input and output as a transport: a line is a message, and nothing else is ever written there."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

logger = logging.getLogger("unstuck_memory.mcp")

LONGEST = 4 * 1024 * 1024  # bytes of a message, as over HTTP
KEPT = 512  # bytes at either end of a longer one, to find out which request it is
PATIENCE = 1.0  # seconds that requests have after the end of input
CHUNK = 65_536

_ID = rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")\s*'
_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_LAST = re.compile(_ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class TooLong(Exception):
    """A message that was not kept."""

    def __init__(self, request: RequestId | None) -> None:
        super().__init__()
        self.request = request


@contextmanager
def wire() -> Iterator[tuple[int, int]]:
    """Standard input and output under other numbers. What the process and its children print goes to standard error meanwhile."""
    source, sink = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)


async def run(server: Server[Any], source: int, sink: int, ended: Callable[[], None]) -> None:
    """Serve one client until the end of its input, and call ``ended`` then. What it still waits for has a moment to be answered."""
    session = _Session(source, sink, ended)
    read_in, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, written = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(session.read, read_in)
        group.start_soon(session.write, written)
        await server.run(read, write, server.create_initialization_options())
        group.cancel_scope.cancel()


class _Session:
    def __init__(self, source: int, sink: int, ended: Callable[[], None]) -> None:
        self._source, self._sink, self._ended = source, sink, ended
        self._lines: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue(1)
        self._waiting: set[RequestId] = set()
        self._answered = asyncio.Event()
        self._writing = asyncio.Lock()

    async def read(self, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        # A thread that nobody waits for: it may be in the middle of a read when the process ends.
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read, args=(self._source, loop, self._lines), daemon=True).start()
        async with messages:
            while (line := await self._lines.get()) is not None:
                if (message := await self._message(line)) is None:
                    continue
                if isinstance(message.message, JSONRPCRequest):
                    self._waiting.add(message.message.id)
                await messages.send(message)
            self._ended()
            with anyio.move_on_after(PATIENCE):
                while self._waiting:
                    self._answered.clear()
                    await self._answered.wait()

    async def _message(self, line: bytes | TooLong) -> SessionMessage | None:
        if isinstance(line, TooLong):
            text = f"the message has more than {LONGEST:,} bytes: at most so many are allowed; divide it into several calls"
            await self._refuse(line.request, INVALID_REQUEST, text)
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            await self._refuse(
                None, PARSE_ERROR, "the line is not a JSON-RPC message: one message a line is allowed"
            )
            return None

    async def _refuse(self, request: RequestId | None, code: int, text: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=code, message=text))
        await self._send(SessionMessage(error))

    async def write(self, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with messages:
            async for message in messages:
                await self._send(message)
                if (
                    isinstance(message.message, JSONRPCResponse | JSONRPCError)
                    and message.message.id is not None
                ):
                    self._waiting.discard(message.message.id)
                    self._answered.set()

    async def _send(self, message: SessionMessage) -> None:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        async with self._writing:
            # In a thread, because a client may not read for a while.
            with suppress(BrokenPipeError):
                await asyncio.to_thread(_write, self._sink, text.encode() + b"\n")


def _write(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _read(source: int, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | TooLong | None]) -> None:
    """Read lines in a thread of its own, as fast as they are taken."""
    with suppress(RuntimeError, asyncio.CancelledError):  # the loop has ended
        for line in _lines(source):
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()


def _lines(source: int) -> Iterator[bytes | TooLong]:
    """Lines that are not blank. Of one that is too long, only the ends are kept while it is read."""
    line, size = bytearray(), 0
    while chunk := _chunk(source):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            size += len(part)
            line += part
            if size > LONGEST:
                yield TooLong(_request(bytes(line)))
            elif line.strip():
                yield bytes(line)
            line, size = bytearray(), 0
        size += len(rest)
        line += rest
        if size > LONGEST:
            del line[KEPT:-KEPT]
    if line.strip() and size <= LONGEST:
        yield bytes(line)


def _chunk(source: int) -> bytes:
    try:
        return os.read(source, CHUNK)
    except OSError as error:  # for example of a terminal that went away
        logger.warning("standard input cannot be read any more: %s", error)
        return b""


def _request(ends: bytes) -> RequestId | None:
    """The id of a request of which only the ends are known: clients write it before or behind the parameters."""
    found = _FIRST.match(ends) or _LAST.search(ends[-KEPT:])
    if found is None:
        return None
    return int(found[1]) if found[1] else found[2].decode(errors="replace")
