"""Lines: the connections of a store, and how a script gets to the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, NoScriptError  # noqa: A004 - as the driver calls it

from unstuck.errors import StoreUnavailable
from unstuck.stores.redis.place import Place
from unstuck.stores.redis.plainly import speaking_plainly
from unstuck.stores.redis.texts import scripts

log = logging.getLogger("unstuck.redis")

MOST = 8  # connections of one store at a time; who asks for more waits
PATIENCE = 20.0  # seconds for an answer: nobody holds a lease much longer by default
CONNECTING = 10.0  # seconds for a connection to be made
REPLICATED = 5.0  # seconds for replicas to have what was written
LISTENING = 1000  # the same of one that listens, where each queue has a bell of its own
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
        self._patient = _client(place, SLICE + PATIENCE, LISTENING if place.spread else MOST)
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

    async def run_safely(self, name: str, queues: Iterable[str] = (), **ask: Any) -> Any:
        """As ``run``, and wait until as many replicas have what was written as the URL asks for."""
        named = list(queues)
        answer = await self.run(name, named, **ask)
        if wanted := self.place.replicas:
            # A connection that saw nothing newer would be told of nothing newer: write on it, then wait on it.
            mark = self.place.own("mark", named[0] if named else None)
            with speaking_plainly():
                async with self._client.pipeline(transaction=False) as pipeline:
                    where = await self._where(mark)
                    pipeline.execute_command("SET", mark, "1")
                    pipeline.execute_command("WAIT", wanted, round(REPLICATED * 1000), **where)
                    _, there = await pipeline.execute()
            if there < wanted:
                raise StoreUnavailable(
                    f"only {there} of {wanted} replicas have the jobs yet: enqueue them again, that is harmless"
                )
        return answer

    async def queues(self) -> list[str]:
        """Every queue that this store knows."""
        return sorted(name.decode() for name in await self.ask("SMEMBERS", self.place.own("queues")))

    async def scan(self, pattern: str) -> AsyncIterator[str]:
        """The names of keys that are there all the while; some may come twice."""
        for where in await self._primaries():
            cursor = b"0"
            while True:
                words = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                with speaking_plainly():
                    cursor, some = await self._client.execute_command(*words, **where)
                for key in some:
                    yield key.decode(errors="replace")
                if cursor == b"0":
                    break

    async def ask(self, *command: Any) -> Any:
        """The answer to a command about one key."""
        self.must_be_open()
        with speaking_plainly():
            return await self._client.execute_command(*command)

    async def ask_server(self, *command: Any) -> Any:
        """The answer to a command about no key; in a cluster, of the server that has what belongs to no queue."""
        self.must_be_open()
        with speaking_plainly():
            where = await self._where(self.place.own("number"))
            return await self._client.execute_command(*command, **where)

    async def ask_servers(self, *command: Any) -> list[Any]:
        """The answers to a command about no key of every server that may have keys of ours."""
        with speaking_plainly():
            return [await self._client.execute_command(*command, **of) for of in await self._primaries()]

    async def together(self, commands: Sequence[Sequence[Any]], queue: str | None = None) -> list[Any]:
        """The answers to commands that all see the same moment, about this queue or about what belongs to none."""
        return list(await self.run("read", [] if queue is None else [queue], commands=commands))

    async def listen(self, keys: Sequence[str], seconds: float) -> tuple[str, float] | None:
        """Take the first bell that rings: its kind and the time it names."""
        self.must_be_open()
        with speaking_plainly():
            rung = await self._patient.execute_command("BZPOPMIN", *keys, min(seconds, SLICE))
        return None if rung is None else (rung[1].decode(), float(rung[2]))

    async def _where(self, key: str) -> dict[str, Any]:
        """How the driver is told to ask the server that has a key."""
        if not self.place.cluster:
            return {}
        await self._client.initialize()
        return {"target_nodes": self._client.get_node_from_key(key)}

    async def _primaries(self) -> list[dict[str, Any]]:
        """How the driver is told to ask each server: those of the cluster, or the one that there is."""
        self.must_be_open()
        if not self.place.cluster:
            return [{}]
        with speaking_plainly():
            await self._client.initialize()
        if not self.place.spread:
            return [await self._where(self.place.own("number"))]
        return [{"target_nodes": node} for node in self._client.get_primaries()]

    async def close(self) -> None:
        self._open = False
        closing = [self._close(client) for client in (self._client, self._patient)]
        for error in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("a connection was not closed in order: %s", error)

    async def _close(self, client: Any) -> None:
        await client.aclose()
        if self.place.cluster:
            # One that has to look at the cluster anew takes itself for closed, and leaves its connections open.
            for nodes in ("nodes_cache", "startup_nodes"):
                await client.nodes_manager.aclose(nodes)
        else:
            client.connection_pool.closed = True
            await client.connection_pool.disconnect()

    def must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")


class _Pool(BlockingConnectionPool):
    """Leaves none open that was made while it closed, and that it would not close any more."""

    closed = False

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        connection = await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        if self.closed:
            await connection.disconnect(nowait=True)
            raise ConnectionError("the store is closed")
        return connection

    async def release(self, connection: Any) -> None:
        await super().release(connection)
        if self.closed:  # whoever was about to use it was cancelled
            await connection.disconnect(nowait=True)


def _client(place: Place, timeout: float, most: int) -> Any:
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": CONNECTING,
        # The driver would ask again by itself, and a lease whose answer was lost would be taken twice.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "unstuck",
    }
    client: Any
    if place.cluster:
        # Who asks for more than the driver allows is refused there, instead of waiting.
        client = RedisCluster(max_connections=16 * most, **common, **_for_cluster(place.connect))
        del client.result_callbacks["SCAN"]  # it would put the answers of several servers together
    else:
        over_network = {} if "path" in place.connect else {"socket_keepalive": True}
        options: Any = {**common, **over_network, **place.connect}
        client = Redis(connection_pool=_Pool(max_connections=most, timeout=timeout, **options))
    for command in list(client.response_callbacks):
        if not command.startswith(("CLUSTER", "COMMAND")):  # which the driver asks for itself
            del client.response_callbacks[command]  # answers are taken as they come
    return client


def _for_cluster(connect: dict[str, Any]) -> dict[str, Any]:
    """A cluster has one database, and says by a word of its own that it wants TLS."""
    left = {name: value for name, value in connect.items() if name not in ("db", "connection_class")}
    return left | {"ssl": "connection_class" in connect}
