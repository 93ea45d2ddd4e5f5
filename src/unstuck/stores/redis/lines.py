"""Lines: the connections of a store, and how a script gets to the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from unstuck.errors import StoreUnavailable
from unstuck.stores.redis.place import Place
from unstuck.stores.redis.plainly import speaking_plainly
from unstuck.stores.redis.texts import scripts

MOST = 8  # connections of one store at a time; who asks for more waits
PATIENCE = 20.0  # seconds for an answer: nobody holds a lease much longer by default
SLICE = 5.0  # seconds for which the server is asked to wait for a bell

_encode = msgspec.msgpack.Encoder().encode


class Queues(dict[str, int]):
    """Queues by their places among the keys of a script, which they get when they are first asked for."""

    def __missing__(self, queue: str) -> int:
        self[queue] = place = len(self) + 1
        return place


class Lines:
    """A server that does not answer within ``PATIENCE`` is given up; what is asked again is the caller's business."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._client = _client(place, PATIENCE, MOST)
        # Its answers may take as long as the server was asked to wait.
        self._patient = _client(place, SLICE + PATIENCE, MOST)
        self._open = True

    async def run(self, name: str, queues: Iterable[str] = (), **ask: Any) -> Any:
        """Carry out a step about some queues, which it knows by their places, counted from one."""
        named = list(queues)
        keys = self.place.keys(named)
        script = scripts()[name]
        words = (len(keys), *keys, _encode(ask | {"queues": named}))
        self.must_be_open()
        with speaking_plainly():
            try:
                return await self._client.execute_command("EVALSHA", script.sha, *words)
            except NoScriptError:
                return await self._client.execute_command("EVAL", script.text, *words)

    async def queues(self) -> list[str]:
        """Every queue that this store knows."""
        return sorted(name.decode() for name in await self.ask("SMEMBERS", self.place.own("queues")))

    async def ask(self, *command: Any) -> Any:
        self.must_be_open()
        with speaking_plainly():
            return await self._client.execute_command(*command)

    async def together(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to commands that all see the same moment."""
        self.must_be_open()
        with speaking_plainly():
            async with self._client.pipeline(transaction=True) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return list(await pipeline.execute())

    async def listen(self, keys: Sequence[str], seconds: float) -> tuple[str, float] | None:
        """Take the first bell that rings: its kind and the time it names."""
        self.must_be_open()
        with speaking_plainly():
            rung = await self._patient.execute_command("BZPOPMIN", *keys, min(seconds, SLICE))
        return None if rung is None else (rung[1].decode(), float(rung[2]))

    async def close(self) -> None:
        self._open = False
        for client in (self._client, self._patient):
            await client.aclose()
            await client.connection_pool.disconnect()

    def must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")


def _client(place: Place, timeout: float, most: int) -> Any:
    pool = BlockingConnectionPool(
        max_connections=most,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=10,
        socket_keepalive=True,
        # The driver would ask again by itself, and a lease whose answer was lost would be taken twice.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        client_name="unstuck",
        **place.connect,
    )
    client = Redis(connection_pool=pool)
    client.response_callbacks.clear()  # answers are taken as they come
    return client
