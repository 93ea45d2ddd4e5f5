"""Client: runs statements on the server, each in a transaction of its own or several in one."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from neo4j import AsyncDriver, AsyncGraphDatabase, AsyncResult, AsyncSession, AsyncTransaction, Query

from unstuck_memory.errors import GraphDamaged, GraphUnavailable
from unstuck_memory.graphs.neo4j.driver_errors import lost, rolled_back, translated_errors
from unstuck_memory.graphs.statements import statements
from unstuck_memory.vectors import Model

T = TypeVar("T")
PACKAGE = "unstuck_memory.graphs.neo4j"
NEWEST = len(statements(PACKAGE, "cypher/migrations"))  # the version of the schema that this release knows
WRITES = 2  # at a time, the others wait in line without a transaction; with more, all together take longer
CONNECTIONS = 16
PATIENCE = 20.0  # seconds for an answer; without this limit the server would wait for a lock for ever
TRIES = 12
SHORTEST, LONGEST = 0.005, 0.1  # seconds between two tries
_PARTS = {
    "{entity}": "e {.uid, .project, .name, .entity_type, .observations, .version, .created_at, .updated_at, .valid_from, .valid_to, "
    ".changed_by}",
    "{relation}": "r {.*, from: startNode(r).name, to: endNode(r).name}",
    "{now}": "datetime.realtime().epochMillis",
}
# The driver also raises what it logs: without this handler it would be printed twice where logging is not set up.
logging.getLogger("neo4j").addHandler(logging.NullHandler())


class KnownModel(NamedTuple):
    """A model as the graph numbers it. Labels, properties and indexes of its vectors end with the number."""

    name: str
    dimension: int
    number: int


class Moved(Exception):
    """What was found before is gone, although nothing but a rare race explains it: the transaction is undone and tried again."""


class Transaction:
    """Runs statements that are committed together."""

    def __init__(
        self, tx: AsyncTransaction, texts: Mapping[str, str], models: Mapping[Model, KnownModel]
    ) -> None:
        self._tx = tx
        self._texts = texts
        self.models = models
        """Those that were known when the transaction began."""

    async def rows(self, name: str, /, **params: Any) -> list[list[Any]]:
        """The rows of a statement, which is not sent if it is about an empty list."""
        if [] in params.values():
            return []
        return await _rows(await self._tx.run(self._texts[name], params))


class Client:
    """The driver's pool, which reconnects by itself. Nothing is written if another database answers then."""

    def __init__(self, uri: str, auth: tuple[str, str] | None, database: str) -> None:
        self.texts = {name: bare(text) for name, text in statements(PACKAGE, "cypher").items()}
        self._uri = uri
        self._database = database
        self._birth: str | None = None
        self._line = asyncio.Semaphore(WRITES)
        with translated_errors(uri, database):
            self._driver: AsyncDriver = AsyncGraphDatabase.driver(
                uri,
                auth=auth,
                max_connection_pool_size=CONNECTIONS,
                connection_acquisition_timeout=PATIENCE,
                connection_timeout=10.0,
                max_transaction_retry_time=0.0,
                notifications_min_severity="OFF",
                telemetry_disabled=True,
                user_agent="unstuck-memory",
            )

    async def close(self) -> None:
        await self._driver.close()

    async def rows(self, name: str, /, **params: Any) -> list[list[Any]]:
        """The rows of a statement that reads."""
        return await self.run(self.texts[name], params)

    async def run(self, text: str, params: dict[str, Any], *, patience: float = PATIENCE) -> list[list[Any]]:
        """The rows of a statement that may be run twice."""

        async def ask(session: AsyncSession) -> list[list[Any]]:
            return await _rows(await session.run(Query(text, timeout=patience), params))

        return await self._again(ask, patience)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run several statements in one transaction, which is undone if ``work`` raises.

        ``work`` is called again after a deadlock, which is normal, and once after a lost connection.
        """

        async def carry(session: AsyncSession) -> T:
            tx = await session.begin_transaction(timeout=PATIENCE)
            async with tx:
                transaction = Transaction(tx, self.texts, await self._begun(tx))
                answer = await work(transaction)
                await tx.commit()
                return answer

        async with self._line:
            return await self._again(carry, PATIENCE)

    async def _begun(self, tx: AsyncTransaction) -> dict[Model, KnownModel]:
        """The models that are known, if this is the database that was there before."""
        found = await _rows(await tx.run(self.texts["begin"]))
        if not found:
            raise GraphDamaged(f"database {self._database!r} has no graph yet: run unstuck-memory init")
        birth, version, models = found[0]
        if self._birth not in (None, birth):
            raise GraphUnavailable(
                f"another database answers at {self._uri} than before: nothing is written to it; restart this process if that is intended"
            )
        refuse_newer(version)
        self._birth = birth
        return numbered(models)

    async def _again(self, work: Callable[[AsyncSession], Awaitable[T]], patience: float) -> T:
        reconnected = False
        deadline = asyncio.get_running_loop().time() + patience
        for tries in range(1, TRIES + 1):
            try:
                return await self._once(work, patience)
            except GraphUnavailable as error:
                once_more = lost(error.__cause__) and not reconnected
                late = tries == TRIES or asyncio.get_running_loop().time() > deadline
                if late or not (once_more or rolled_back(error.__cause__)):
                    raise
                reconnected = reconnected or once_more
            except Moved as error:
                if tries == TRIES:
                    raise GraphUnavailable(f"{self._uri}: {error}; try again later") from error
            await asyncio.sleep(random.uniform(0.0, min(LONGEST, SHORTEST * 2**tries)))  # noqa: S311 - not a secret
        raise AssertionError("the last try returns or raises")

    async def _once(self, work: Callable[[AsyncSession], Awaitable[T]], patience: float) -> T:
        with translated_errors(self._uri, self._database):
            session = self._driver.session(database=self._database, fetch_size=-1)
            async with asyncio.timeout(patience + 5.0), session:
                try:
                    return await work(session)
                except RuntimeError as error:
                    # A closed transport of uvloop raises it where one of asyncio raises an OSError, which the driver expects.
                    if type(error) is not RuntimeError:
                        raise
                    session.cancel()
                    raise ConnectionResetError(str(error)) from error


def bare(text: str) -> str:
    """A statement without comments, which the server would parse each time, and with its parts filled in."""
    lines = (line.partition("//")[0].rstrip() for line in text.splitlines())
    found = "\n".join(line for line in lines if line)
    for part, meaning in _PARTS.items():
        found = found.replace(part, meaning)
    return re.sub(r"[ \t]+", " ", found)


def numbered(found: Iterable[list[Any]]) -> dict[Model, KnownModel]:
    """Models as rows of name, dimension and number."""
    return {Model(name, dimension): KnownModel(name, dimension, number) for name, dimension, number in found}


def refuse_newer(version: int) -> None:
    if version > NEWEST:
        raise GraphDamaged(
            f"the graph's schema is version {version}, this release knows up to {NEWEST}: upgrade unstuck-memory"
        )


async def _rows(result: AsyncResult) -> list[list[Any]]:
    return [list(record.values()) async for record in result]
