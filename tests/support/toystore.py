"""The smallest store there can be, for tests of the harness itself; also a program: ``toystore.py PORT FILE``."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class ToyStore:
    """Keeps each line it is sent, in memory or in a file, and answers "did" and the line; "bye" hangs up."""

    def __init__(self, file: Path | None = None) -> None:
        self.kept: list[bytes] = []
        self.clients = 0
        self._file = file

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        try:
            while (line := await reader.readline()) not in (b"", b"bye\n"):
                writer.write(b"did ")
                await asyncio.sleep(0.01)  # it answers in two parts, and commits in between
                self._keep(line)
                writer.write(line)
        except OSError:
            pass  # that client is gone, the others are not
        finally:
            self.clients -= 1
            writer.close()

    def _keep(self, line: bytes) -> None:
        self.kept.append(line)
        if self._file:
            with self._file.open("ab") as file:
                file.write(line)


class Client:
    """A connection to a toy store."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line)
        return await asyncio.wait_for(self.reader.readline(), 5)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def serve(port: int, file: Path) -> None:
    async with ToyStore(file).listening(port):
        print("listening", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
