"""One client's connection through the proxy, joined to the server's connection behind it."""

import asyncio
import socket
import struct
from contextlib import suppress

from support.faults import Cut, DropReply, Faults, Flow

CHUNK = 65536
NO_LINGER = struct.pack("ii", 1, 0)  # closing then sends RST instead of FIN


class End:
    """One of a link's two connections."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """The next bytes, or none when the other side will send no more."""
        return await self._reader.read(CHUNK)

    async def write(self, chunk: bytes) -> None:
        if self._writer.is_closing():  # asyncio would drop the bytes in silence
            raise ConnectionResetError("closed by a fault meanwhile")
        self._writer.write(chunk)
        await self._writer.drain()

    def finish(self) -> None:
        """Say that no more will be written."""
        if not self._writer.is_closing():
            self._writer.write_eof()

    def reset(self) -> None:
        with suppress(OSError, ValueError):  # closed already, which uvloop calls a negative descriptor
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close in good order: what was written still arrives, unless this is cancelled."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close at once: what was written may be lost."""
        self._writer.transport.abort()


class Link:
    """The two ends, and what passes between them under the faults. Made by the task that will carry it."""

    def __init__(self, client: End, server: End, faults: Faults) -> None:
        self._client = client
        self._server = server
        self._faults = faults
        self._task = asyncio.current_task()
        self._recent = b""
        self._dropping: DropReply | None = None

    async def carry(self) -> None:
        """Pass bytes both ways until both sides are done, or a fault ends the connection."""
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry_requests())
                directions.create_task(self._carry_replies())
        except* OSError:  # a reset at one end goes on to the other
            self.reset()

    async def close(self) -> None:
        try:
            await asyncio.gather(self._client.close(), self._server.close())
        finally:  # cancelled before their first step, they closed nothing
            self._client.abandon()
            self._server.abandon()

    def reset(self) -> None:
        self._client.reset()
        self._server.reset()

    def spare(self) -> None:
        """Let a reply pass that was to be dropped but has not come yet."""
        self._recent = b""
        self._dropping = None

    async def _carry_requests(self) -> None:
        while chunk := await self._client.read():
            self._faults.counts.from_client += len(chunk)
            await self._faults.hold()
            self._look_for_the_request(chunk)
            await self._server.write(chunk)
            self._faults.counts.to_server += len(chunk)
        await self._faults.hold()
        self._server.finish()

    async def _carry_replies(self) -> None:
        while chunk := await self._server.read():
            self._faults.counts.from_server += len(chunk)
            await self._faults.hold()
            if self._dropping:
                await self._swallow(self._dropping.quiet)
                return
            if isinstance(cut := self._faults.now, Cut):
                if cut.left <= len(chunk):
                    await self._cut(chunk[: cut.left])
                    return
                self._faults.enter(Cut(cut.left - len(chunk)))
            await self._reply(chunk)
        await self._faults.hold()
        self._client.finish()

    async def _reply(self, chunk: bytes) -> None:
        await self._client.write(chunk)
        self._faults.counts.to_client += len(chunk)

    def _look_for_the_request(self, chunk: bytes) -> None:
        """Mark this link's next reply for dropping if the request that was waited for is here."""
        if not isinstance(drop := self._faults.now, DropReply):
            return
        seen = self._recent + chunk
        self._recent = seen[-len(drop.to) :]  # the request may lie across two chunks
        if drop.to in seen:
            self._dropping = drop
            self._faults.enter(Flow())

    async def _swallow(self, quiet: float) -> None:
        with suppress(OSError):  # a timeout above all, but the server may also go away by itself
            while chunk := await asyncio.wait_for(self._server.read(), quiet):
                self._faults.counts.from_server += len(chunk)
        self._faults.counts.replies_dropped += 1
        self.reset()

    async def _cut(self, last: bytes) -> None:
        self._faults.enter(Flow())
        self._faults.counts.cuts += 1
        await self._reply(last)
        if self._task is not None:
            self._task.cancel()  # the client may have more to ask, but is not heard
