"""Neo4jClient: runs statements on the server, each in a transaction of its own or several in one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from neo4j import AsyncResult, AsyncSession, Query, exceptions

from unstuck.protocol.errors import SchemaError, StoreUnavailable
from unstuck.stores.neo4j.address import Neo4jAddress
from unstuck.stores.neo4j.driver_errors import LOST, passes, translated_errors
from unstuck.stores.neo4j.sessions import DriverSessions
from unstuck.stores.neo4j.statements import guarded, statements_for
from unstuck.stores.shared.fork_guard import ForkGuard
from unstuck.stores.shared.statements import statements

T = TypeVar("T")
PATIENCE = 20.0  # seconds for an answer; without this limit the server would wait for a lock for ever
TRIES = 12
SHORTEST, LONGEST = 0.005, 0.1  # seconds between two tries
_IDENTITY = """
CALL db.info() YIELD id
OPTIONAL MATCH (s:{label}Store {name: 'store'})
RETURN id, s.birth, coalesce(s.version, 0)
"""
MIGRATIONS = ("unstuck.stores.neo4j", "cypher/migrations")
NEWEST = len(statements(*MIGRATIONS))  # the version of the schema that this release knows


class Asked(NamedTuple):
    """The name of a statement and its parameters."""

    name: str
    params: dict[str, Any]


class _Waiting(NamedTuple):
    asked: Asked
    answer: asyncio.Future[Any]


class _OtherDatabase(Exception):
    """The guard of a statement did not find our store, so the statement did nothing."""


Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


class Neo4jClient:
    """The driver's pool, which reconnects by itself. If another database answers then, statements do nothing."""

    def __init__(self, address: Neo4jAddress) -> None:
        self.fork_guard = ForkGuard()
        self.address = address
        self.statements = statements_for(address.label)
        self._sessions = DriverSessions(address, PATIENCE)
        self._known: str | None = None
        self._birth: str | None = None
        self._waiting: list[_Waiting] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._open = True

    async def ask(
        self, name: str, params: dict[str, Any], *, safe: bool = False, patience: float = PATIENCE
    ) -> Any:
        """The answer of one statement. ``safe`` means that running it twice has the same effect as once."""
        return (await self._carry([Asked(name, params)], safe=safe, patience=patience))[0]

    async def ask_all(self, asked: Sequence[Asked]) -> list[Any]:
        """The answers of statements that are sent and committed together."""
        return await self._carry(asked, safe=False)

    async def ask_text(self, text: str, params: dict[str, Any], *, safe: bool = True) -> Any:
        """The answer of a statement whose text was completed by the caller."""
        return (await self._guarded(guarded(self.address.label, [text]), params, safe, PATIENCE))[0]

    async def rows(self, text: str, *, patience: float = PATIENCE, **params: Any) -> list[list[Any]]:
        """All rows of a statement about the server or the schema."""
        return await self._again(partial(_run, text=text, params=params, patience=patience), True, patience)

    async def share(self, name: str, params: dict[str, Any]) -> Any:
        """As ``ask``, but in one transaction with a statement of the other kind that is requested at the same moment.

        A worker settles what ended and leases what comes next at the same time: that is one commit instead of two.
        """
        self.must_be_open()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(Asked(name, params), loop.create_future())
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(waiting)
        return await waiting.answer

    async def transaction(
        self, work: Callable[[Ask], Awaitable[T]], *, safe: bool = False, patience: float = PATIENCE
    ) -> T:
        """Run several statements in one transaction; each may depend on the answers before it."""

        async def carry(session: AsyncSession) -> T:
            tx = await session.begin_transaction(timeout=patience)
            async with tx:

                async def ask(name: str, params: dict[str, Any]) -> Any:
                    result = await tx.run(self._text(name), params | {"birth": self._birth})
                    return _here(await _rows(result))[0]

                answer = await work(ask)
                await tx.commit()
                return answer

        await self._recognised()
        return await self._again(carry, safe, patience)

    async def identify(self) -> None:
        """Read which database answers, and refuse any other than the one that answered first."""
        text = _IDENTITY.replace("{label}", self.address.label)
        [[found, birth, version]] = await self._once(
            partial(_run, text=text, params={}, patience=PATIENCE), PATIENCE
        )
        if self._known is not None and found != self._known:
            raise StoreUnavailable(
                f"another database answers at {self.address.uri} than before: nothing is written to it; "
                "if the change is intended, restart this process"
            )
        if version > NEWEST:
            raise SchemaError(
                f"the store's schema is version {version}, this release knows up to {NEWEST}: upgrade unstuck"
            )
        self._known, self._birth = found, birth

    @property
    def known(self) -> bool:
        """Whether the database has answered."""
        return self._known is not None

    async def make_database(self) -> None:
        """Create the database, which only editions with several databases can do."""
        text = f"CREATE DATABASE `{self.address.database}` IF NOT EXISTS WAIT"
        with translated_errors(self.address.database):
            async with self._sessions.session("system") as session:
                await _run(session, text, {}, PATIENCE)

    async def close(self) -> None:
        self._open = False
        if self.fork_guard.forked:
            return
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self._sessions.close()

    def must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        self.fork_guard.check()

    async def _carry(self, asked: Sequence[Asked], *, safe: bool, patience: float = PATIENCE) -> list[Any]:
        params = {name: value for one in asked for name, value in one.params.items()}
        return await self._guarded(self._text(*[one.name for one in asked]), params, safe, patience)

    def _text(self, *names: str) -> str:
        key = " + ".join(("", *names))
        if key not in self.statements:
            self.statements[key] = guarded(self.address.label, [self.statements[name] for name in names])
        return self.statements[key]

    async def _guarded(self, text: str, params: dict[str, Any], safe: bool, patience: float) -> list[Any]:
        async def work(session: AsyncSession) -> list[Any]:
            return _here(await _run(session, text, params | {"birth": self._birth}, patience))

        await self._recognised()
        return await self._again(work, safe, patience)

    async def _recognised(self) -> None:
        if self._birth is None:
            self.must_be_open()
            await self.identify()
        if self._birth is None:
            raise SchemaError(
                f"database {self.address.database!r} has no store with the label {self.address.label}, or it was wiped: "
                "run unstuck init"
            )

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        kinds: dict[str, list[_Waiting]] = {}
        for one in waiting:
            kinds.setdefault(one.asked.name, []).append(one)
        while kinds:  # one of each kind; settling comes before leasing
            group = [kinds[name].pop(0) for name in sorted(kinds)]
            kinds = {name: left for name, left in kinds.items() if left}
            task = asyncio.create_task(self._answer(group))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _answer(self, group: Sequence[_Waiting]) -> None:
        try:
            answers = await self._carry(
                [one.asked for one in group], safe=[one.asked.name for one in group] == ["complete"]
            )
        except Exception as error:  # noqa: BLE001 - handed to the caller it belongs to
            if len(group) > 1 and not isinstance(error, StoreUnavailable):
                for one in group:
                    await self._answer([one])
                return
            for one in group:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, answer in zip(group, answers, strict=True):
            if not one.answer.done():  # cancelled meanwhile
                one.answer.set_result(answer)

    async def _again(self, work: Callable[[AsyncSession], Awaitable[T]], safe: bool, patience: float) -> T:
        """Run it, and retry after a deadlock: deadlocks are normal, and the server rolls one of the transactions back.

        If the connection was lost meanwhile, only safe statements are sent once more.
        """
        self.must_be_open()
        lost = False
        for tries in range(TRIES):
            try:
                return await self._once(work, patience)
            except _OtherDatabase:
                self._birth = None
                await self._recognised()
            except StoreUnavailable as error:
                cause = error.__cause__
                undone = isinstance(cause, exceptions.Neo4jError) and passes(cause)
                once_more = safe and not lost and isinstance(cause, LOST)
                if tries == TRIES - 1 or not (undone or once_more):
                    raise
                lost = lost or once_more
            await asyncio.sleep(random.uniform(0.0, min(LONGEST, SHORTEST * 2**tries)))  # noqa: S311 - not a secret
        raise StoreUnavailable(
            f"database {self.address.database!r} keeps changing its identity from one moment to the next"
        )

    async def _once(self, work: Callable[[AsyncSession], Awaitable[T]], patience: float) -> T:
        with translated_errors(self.address.database):
            async with (
                asyncio.timeout(patience + 5.0),
                self._sessions.session(self.address.database) as session,
            ):
                return await work(session)


def _here(found: list[list[Any]]) -> list[Any]:
    if not found:
        raise _OtherDatabase
    return found[0]


async def _run(session: AsyncSession, text: str, params: dict[str, Any], patience: float) -> list[list[Any]]:
    return await _rows(await session.run(Query(text, timeout=patience), params))


async def _rows(result: AsyncResult) -> list[list[Any]]:
    return [list(record.values()) async for record in result]
