"""Frames: JSON messages over a socket between a worker and the children of its fork server."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import msgspec

LARGEST = 64 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_encode = msgspec.json.Encoder().encode


def pack(message: Any) -> bytes:
    text = _encode(message)
    return _LENGTH.pack(len(text)) + text


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and the file descriptors that came with it; empty when the other side is gone."""
    head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 1)
    head += _rest(sock, _LENGTH.size - len(head)) if head else b""
    if len(head) < _LENGTH.size:
        return b"", fds
    return _rest(sock, _LENGTH.unpack(head)[0]), fds


async def read(reader: asyncio.StreamReader) -> bytes:
    """The next message; empty when the other side is gone."""
    try:
        [length] = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(min(length, LARGEST))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _rest(sock: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size and (more := sock.recv(size - len(text))):
        text += more
    return text if len(text) == size else b""
