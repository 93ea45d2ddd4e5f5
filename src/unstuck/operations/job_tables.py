"""JobTables: what interfaces do with tables of jobs that belong to another system. The counterpart of Jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

from unstuck.operations.doctor import doctor_tables
from unstuck.operations.recovered import Recovered, recover_once
from unstuck.protocol.foreign import Stuck
from unstuck.protocol.leases import GRACE
from unstuck.protocol.operators import Finding
from unstuck.recovery.reaper import Reaper
from unstuck.stores import open_tables
from unstuck.text.durations import Seconds

if TYPE_CHECKING:
    from unstuck.protocol.foreign import ForeignTables
    from unstuck.stores.postgres.foreign.tables import Tables


class JobTables:
    """Tables of yours with jobs in them, as they are; nothing is added to them unless ``prepare`` is called."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, tables: Sequence[str]) -> AsyncIterator[Self]:
        """The tables of these names in the database behind a URL, and those that the URL names itself."""
        names = urlencode([("table", table) for table in tables])
        async with open_tables(f"{url}{'&' if '?' in url else '?'}{names}") as opened:
            yield cls(opened)

    async def doctor(self) -> tuple[list[Finding], list[Stuck]]:
        """What is odd about the tables, and the rows that are stuck, with what a reaper would do about each."""
        return await doctor_tables(self._tables)

    async def preparation(self) -> list[str]:
        """The SQL that gives the tables the columns and indexes that they lack."""
        return await self._tables.preparation()

    async def prepare(self) -> list[str]:
        """Run that SQL; answers with it."""
        return await self._tables.prepare()

    async def recover(self, *, grace: Seconds = GRACE) -> Recovered:
        """End the leases that ran out, here and now."""
        return await recover_once(Reaper(self._tables, grace=grace))

    def reaper(self, *, interval: Seconds, grace: Seconds = GRACE) -> Reaper:
        """A reaper of these tables; ``run()`` it while they are open."""
        return Reaper(self._tables, interval=interval, grace=grace)

    def measured(self) -> ForeignTables:
        """The same tables for ``serve_metrics``, with connections of their own and the totals of the reapers above."""
        return self._tables.twin()
