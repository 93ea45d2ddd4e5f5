"""A TCP proxy between a client and its server that breaks the network on demand."""

import asyncio
import socket
from contextlib import suppress
from typing import Self

from support.faults import Counts, Cut, DropReply, Fault, Faults, Flow
from support.link import End, Link


class Proxy:
    """Stands before ``host:port`` on a port of its own, ``proxy.port``.

    One fault at a time: each replaces the one before, for open connections too. The faults are plain calls
    that take effect at once, though bytes already handed to the kernel are not called back. Everything runs
    in the test's event loop: a test that blocks the loop stalls its network. A client for whom the server
    cannot be reached is reset.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self._target = (host, port)
        self._faults = Faults()
        self._listener: socket.socket | None = None
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._era = 0

    async def __aenter__(self) -> Self:
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.heal()
        self._deafen()
        await asyncio.sleep(0)  # a task cancelled before its first step would never close its socket
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes aborted connections in its next turn

    def through(self, url: str) -> str:
        """The URL of something on the server, as it is reached through the proxy."""
        return url.replace(f":{self._target[1]}/", f":{self.port}/")

    @property
    def counts(self) -> Counts:
        return self._faults.counts

    @property
    def open(self) -> int:
        """Connections that now reach from a client through to the server."""
        return len(self._links)

    def heal(self) -> None:
        """Let everything pass again, first of all what was held back."""
        self._enter(Flow())

    def stall(self) -> None:
        """Hold all bytes, and the news of closed connections, until healed. New connections open and hang."""
        self._enter(Flow(delay=float("inf")))

    def delay(self, seconds: float) -> None:
        """Hold each chunk for this long, in both directions."""
        self._enter(Flow(delay=seconds))

    def reset(self, *, new: bool = False) -> None:
        """Reset every open connection; with ``new`` also each later one, as soon as it is accepted."""
        self._enter(Flow(reset_new=new))
        self._accept()
        self._era += 1  # dooms the connections that are accepted, but have not reached the server yet
        for link in tuple(self._links):
            self._reset(link)

    def refuse(self) -> None:
        """Refuse new connections as a dead server does; open ones live on."""
        self._enter(Flow(), listen=False)

    def cut_after(self, count: int) -> None:
        """Close, once, the connection that carries the server's ``count``-th byte from now, behind that byte.

        With 0 it is the connection of the next reply, and nothing of that reply arrives.
        """
        self._enter(Cut(count))

    def drop_reply(self, *, to: bytes = b"", quiet: float = 0.05) -> None:
        """Pass on the next request that contains ``to``, swallow its reply, then reset the connection. Once.

        The reset waits until the server said nothing for ``quiet`` seconds: a server that answers in parts
        may commit after the first, and must not learn before that its client is gone.
        """
        self._enter(DropReply(to, quiet))

    def _enter(self, fault: Fault, *, listen: bool = True) -> None:
        self._faults.enter(fault)
        for link in self._links:
            link.spare()
        if listen:
            self._listen()
        else:
            self._deafen()

    def _listen(self) -> None:
        if self._listener is None:
            # The port stays the same over a refusal, so that clients find their way back.
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _deafen(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            while self._listener is not None:
                client, _ = self._listener.accept()
                self.counts.accepted += 1
                task = asyncio.get_running_loop().create_task(self._serve(client, self._era))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket, era: int) -> None:
        client = End(*await asyncio.open_connection(sock=sock))
        try:
            server = End(*await asyncio.open_connection(*self._target))
            await self._join(client, server, era)
        except OSError:  # the server cannot be reached
            client.reset()
        finally:
            await client.close()

    async def _join(self, client: End, server: End, era: int) -> None:
        link = Link(client, server, self._faults)
        self._links.add(link)
        try:
            if era != self._era or (isinstance(self._faults.now, Flow) and self._faults.now.reset_new):
                self._reset(link)
            else:
                await link.carry()
        finally:
            self._links.discard(link)
            await link.close()

    def _reset(self, link: Link) -> None:
        self._links.discard(link)
        self.counts.resets += 1
        link.reset()
