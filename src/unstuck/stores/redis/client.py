"""RedisClient: the connections of a store, and how it sends scripts and commands to the server."""

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

from unstuck.protocol.errors import StoreUnavailable
from unstuck.stores.redis.address import RedisAddress
from unstuck.stores.redis.driver_errors import translated_errors
from unstuck.stores.redis.statements import scripts
from unstuck.stores.shared.fork_guard import ForkGuard

log = logging.getLogger("unstuck.redis")

MOST = 8  # connections of one store; a call that needs another one waits
PATIENCE = 20.0  # seconds for an answer; leases are not much longer by default
CONNECTING = 10.0  # seconds to make a connection
REPLICATED = 5.0  # seconds for replicas to receive a write
LISTENING = 1000  # connections for waiting on markers, where each queue needs one of its own
SLICE = 5.0  # seconds that one call waits for a marker

_encode = msgspec.msgpack.Encoder().encode


class Queues(dict[str, int]):
    """Queues with their positions among the keys of a script, assigned when a queue is first looked up."""

    def __missing__(self, queue: str) -> int:
        self[queue] = position = len(self) + 1
        return position


class RedisClient:
    """A call fails if the server does not answer within ``PATIENCE``; the caller decides what to retry."""

    def __init__(self, address: RedisAddress) -> None:
        self.fork_guard = ForkGuard()
        self.address = address
        self._driver = _driver(address, PATIENCE, MOST)
        # The server may take SLICE seconds longer to answer.
        self._listening_driver = _driver(address, SLICE + PATIENCE, LISTENING if address.spread else MOST)
        self._open = True

    async def run(self, name: str, queues: Iterable[str] = (), **ask: Any) -> Any:
        """Run a script about some queues. The script knows them by their positions, counted from one."""
        named = list(queues)
        keys = self.address.keys(named)
        script = scripts()[name]
        words = (len(keys), *keys, _encode(ask | {"queues": named}))
        self.must_be_open()
        with translated_errors():
            try:
                return await self._driver.execute_command("EVALSHA", script.sha, *words)
            except NoScriptError:
                return await self._driver.execute_command("EVAL", script.text, *words)

    async def run_safely(self, name: str, queues: Iterable[str] = (), **ask: Any) -> Any:
        """As ``run``, and wait until as many replicas have the write as the URL asks for."""
        named = list(queues)
        answer = await self.run(name, named, **ask)
        if wanted := self.address.replicas:
            # WAIT only covers writes of its own connection: write on the connection, then wait on it.
            mark = self.address.own("mark", named[0] if named else None)
            with translated_errors():
                async with self._driver.pipeline(transaction=False) as pipeline:
                    where = await self._where(mark)
                    pipeline.execute_command("SET", mark, "1")
                    pipeline.execute_command("WAIT", wanted, round(REPLICATED * 1000), **where)
                    _, there = await pipeline.execute()
            if there < wanted:
                raise StoreUnavailable(
                    f"only {there} of {wanted} replicas have the jobs yet: enqueue them again, which is harmless"
                )
        return answer

    async def queues(self) -> list[str]:
        """Every queue that this store knows."""
        return sorted(name.decode() for name in await self.ask("SMEMBERS", self.address.own("queues")))

    async def scan(self, pattern: str) -> AsyncIterator[str]:
        """The names of all keys that exist during the whole scan; some may come twice."""
        for where in await self._primaries():
            cursor = b"0"
            while True:
                words = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                with translated_errors():
                    cursor, some = await self._driver.execute_command(*words, **where)
                for key in some:
                    yield key.decode(errors="replace")
                if cursor == b"0":
                    break

    async def ask(self, *command: Any) -> Any:
        """The answer to a command about one key."""
        self.must_be_open()
        with translated_errors():
            return await self._driver.execute_command(*command)

    async def ask_server(self, *command: Any) -> Any:
        """The answer to a command about no key; in a cluster, from the server with the keys that belong to no queue."""
        self.must_be_open()
        with translated_errors():
            where = await self._where(self.address.own("number"))
            return await self._driver.execute_command(*command, **where)

    async def ask_servers(self, *command: Any) -> list[Any]:
        """The answers to a command about no key, from every server that may have keys of this store."""
        with translated_errors():
            return [await self._driver.execute_command(*command, **of) for of in await self._primaries()]

    async def together(self, commands: Sequence[Sequence[Any]], queue: str | None = None) -> list[Any]:
        """Run commands atomically, about this queue or about keys that belong to no queue."""
        return list(await self.run("read", [] if queue is None else [queue], commands=commands))

    async def listen(self, keys: Sequence[str], seconds: float) -> tuple[str, float] | None:
        """Wait for a marker in one of the keys and take it: its kind and the time it names."""
        self.must_be_open()
        driver, where = self._listening_driver, {}
        with translated_errors():
            if self.address.cluster:
                # The driver itself would ask any server, and connect to all of them again after a few that refer it to another.
                await driver.initialize()
                where = {"target_nodes": driver.get_node_from_key(keys[0])}
            marker = await driver.execute_command("BZPOPMIN", *keys, min(seconds, SLICE), **where)
        return None if marker is None else (marker[1].decode(), float(marker[2]))

    async def _where(self, key: str) -> dict[str, Any]:
        """The driver's option that sends a command to the server that has a key."""
        if not self.address.cluster:
            return {}
        await self._driver.initialize()
        return {"target_nodes": self._driver.get_node_from_key(key)}

    async def _primaries(self) -> list[dict[str, Any]]:
        """For each server that may have keys of this store, the driver's option that sends a command to it."""
        self.must_be_open()
        if not self.address.cluster:
            return [{}]
        with translated_errors():
            await self._driver.initialize()
        if not self.address.spread:
            return [await self._where(self.address.own("number"))]
        return [{"target_nodes": node} for node in self._driver.get_primaries()]

    async def close(self) -> None:
        self._open = False
        if self.fork_guard.forked:
            return
        closing = [self._close(driver) for driver in (self._driver, self._listening_driver)]
        for error in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("could not close a connection properly: %s", error)

    async def _close(self, driver: Any) -> None:
        await driver.aclose()
        if self.address.cluster:
            # A driver that is about to reload the cluster's layout counts as closed already and leaves its connections open.
            for nodes in ("nodes_cache", "startup_nodes"):
                await driver.nodes_manager.aclose(nodes)
        else:
            driver.connection_pool.closed = True
            await driver.connection_pool.disconnect()

    def must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        self.fork_guard.check()


class _Pool(BlockingConnectionPool):
    """Also closes connections that were being made or used while the pool closed."""

    closed = False

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        connection = await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        if self.closed:
            await connection.disconnect(nowait=True)
            raise ConnectionError("the store is closed")
        return connection

    async def release(self, connection: Any) -> None:
        await super().release(connection)
        if self.closed:  # the call that was about to use it was cancelled
            await connection.disconnect(nowait=True)


def _driver(address: RedisAddress, timeout: float, most: int) -> Any:
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": CONNECTING,
        # Otherwise the driver would retry by itself and lease twice if the first answer was lost.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "unstuck",
    }
    driver: Any
    if address.cluster:
        # In a cluster the driver refuses a call that needs one connection more, instead of letting it wait.
        driver = RedisCluster(max_connections=16 * most, **common, **_for_cluster(address.connect))
        del driver.result_callbacks["SCAN"]  # it would merge the answers of several servers
    else:
        over_network = {} if "path" in address.connect else {"socket_keepalive": True}
        options: Any = {**common, **over_network, **address.connect}
        driver = Redis(connection_pool=_Pool(max_connections=most, timeout=timeout, **options))
    for command in list(driver.response_callbacks):
        if not command.startswith(("CLUSTER", "COMMAND")):  # the driver itself uses these
            del driver.response_callbacks[command]  # we want raw answers
    return driver


def _for_cluster(connect: dict[str, Any]) -> dict[str, Any]:
    """RedisCluster has only one database and takes ``ssl`` instead of a connection class."""
    left = {name: value for name, value in connect.items() if name not in ("db", "connection_class")}
    return left | {"ssl": "connection_class" in connect}
