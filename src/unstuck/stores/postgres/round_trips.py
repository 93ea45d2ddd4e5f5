"""RoundTrips: sends queries to the server. Queries of the same moment share one round trip and one commit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors

from unstuck.protocol.errors import StoreUnavailable
from unstuck.stores.postgres.connections import PATIENCE, Connection, Connections
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Answer, Step

T = TypeVar("T")
TRIES = 5
FEW = 200  # up to so many jobs, the commit is the largest cost; with more, one query runs while the answer to another is read
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)


class _Asked(NamedTuple):
    queries: Sequence[Query]
    answer: asyncio.Future[list[Answer]]


class RoundTrips:
    """A worker settles ended jobs and leases the next ones at the same time: together they cost one commit."""

    def __init__(self, connections: Connections, sql: Mapping[str, bytes]) -> None:
        self._connections = connections
        self._sql = sql
        self._asked: list[_Asked] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, queries: Sequence[Query], jobs: int) -> list[Answer]:
        """The answers to queries in one transaction, shared with other calls of this moment about a few jobs."""
        if jobs > FEW:
            return await self.alone(*queries)
        self._connections.must_be_open()
        loop = asyncio.get_running_loop()
        asked = _Asked(queries, loop.create_future())
        if not self._asked:
            loop.call_soon(self._send)
        self._asked.append(asked)
        return await asked.answer

    async def together(self, step: Step[T], jobs: int) -> T:
        """Carry out a step each of whose queries is a transaction, shared with other calls of that moment."""

        async def ask(query: Query) -> Answer:
            return (await self.ask([query], jobs))[0]

        return await _carry(step, ask)

    async def apart(self, step: Step[T], patience: float = PATIENCE) -> T:
        """Carry out a step each of whose queries is a transaction of its own."""

        async def ask(query: Query) -> Answer:
            return (await self.alone(query, patience=patience))[0]

        return await _carry(step, ask)

    async def alone(self, *queries: Query, patience: float | None = PATIENCE) -> list[Answer]:
        """The answers to queries in one transaction, shared with no other call."""
        return await self._again(lambda connection: self._fetch(connection, queries), patience)

    async def one(self, name: str, **params: Any) -> Answer:
        """The answer to one query in a transaction of its own."""
        [answer] = await self.alone(Query(name, params))
        return answer

    async def snapshot(self, *queries: Query) -> list[Answer]:
        """The answers to queries that all see the same moment."""
        begin, end = Query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {}), Query("COMMIT", {})
        return (await self.alone(begin, *queries, end))[1:-1]

    async def transaction(self, step: Callable[[], Step[T]], patience: float = PATIENCE) -> T:
        """Carry out a step all of whose queries are one transaction."""

        async def work(connection: Connection) -> T:
            async def ask(query: Query) -> Answer:
                return (await self._fetch(connection, [query]))[0]

            async with connection.transaction():
                return await _carry(step(), ask)

        return await self._again(work, patience)

    async def close(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _send(self) -> None:
        asked, self._asked = self._asked, []
        task = asyncio.create_task(self._answer(asked))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        try:
            answers = await self.alone(*[query for one in asked for query in one.queries])
        except Exception as error:  # noqa: BLE001 - passed to the caller it belongs to
            if len(asked) > 1 and not isinstance(error, StoreUnavailable):
                for one in asked:
                    await self._answer([one])
                return
            for one in asked:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one in asked:
            mine, answers = answers[: len(one.queries)], answers[len(one.queries) :]
            if not one.answer.done():  # cancelled meanwhile
                one.answer.set_result(mine)

    async def _again(self, work: Callable[[Connection], Awaitable[T]], patience: float | None) -> T:
        """Run ``work``, again if the server aborted it: deadlocks are normal, and one of the transactions starts over."""
        self._connections.must_be_open()
        for tries in range(TRIES):
            async with self._connections.one(patience) as connection:
                try:
                    return await work(connection)
                except _AGAIN:
                    if tries == TRIES - 1:
                        raise
                    await connection.close()  # as after any other error
            await asyncio.sleep(random.uniform(0.001, 0.01) * 2**tries)  # noqa: S311 - not a secret
        raise AssertionError  # the last try has answered or raised

    async def _fetch(self, connection: Connection, queries: Sequence[Query]) -> list[Answer]:
        if len(queries) == 1:
            cursors = [await connection.execute(*self._text(queries[0]))]
        else:
            async with connection.pipeline():
                cursors = [await connection.execute(*self._text(query)) for query in queries]
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def _text(self, query: Query) -> tuple[bytes, dict[str, Any]]:
        return self._sql.get(query.name) or query.name.encode(), query.params


async def _carry(step: Step[T], ask: Callable[[Query], Awaitable[Answer]]) -> T:
    try:
        query = next(step)
        while True:
            try:
                answer = await ask(query)
            except psycopg.Error as error:  # a step may handle it
                query = step.throw(error)
            else:
                query = step.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value
