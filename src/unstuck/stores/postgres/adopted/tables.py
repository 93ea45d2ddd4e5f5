"""Tables: foreign tables for a reaper. It needs no schema of ours, no column of ours and no right to make any."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from unstuck.abilities import Judge, Reaped, Stuck
from unstuck.errors import StoreUnavailable
from unstuck.layout import Layout
from unstuck.model import Outcome, Worker
from unstuck.store import GRACE, Blind, Clock, Counts, Finding
from unstuck.stores.postgres.adopted import examine
from unstuck.stores.postgres.adopted.locked import UNSEEN, briefly, finding
from unstuck.stores.postgres.adopted.looking import count
from unstuck.stores.postgres.adopted.prepare import apply, preparation
from unstuck.stores.postgres.adopted.reaping import Harvest, reap
from unstuck.stores.postgres.adopted.table import Table, probe
from unstuck.stores.postgres.desk import Desk
from unstuck.stores.postgres.lines import Lines
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.texts import texts
from unstuck.stores.telling import reaped as counter

log = logging.getLogger("unstuck.postgres")
T = TypeVar("T")
Tally = Counter[tuple[str, str]]


class Tables:
    """What was done since the beginning is in ``tally``, by table and counter."""

    def __init__(self, place: Place, tally: Tally | None = None) -> None:
        self._place = place
        self.tally: Tally = Counter() if tally is None else tally

    async def __aenter__(self) -> Self:
        self._lines = Lines(self._place)
        self._desk = Desk(self._lines, {name: text.encode() for name, text in texts(self._place).items()})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._desk.close()
        await self._lines.close()

    def twin(self) -> Tables:
        """Another view of the same tables with connections of its own, and the same tally."""
        return Tables(self._place, self.tally)

    async def clock(self) -> Clock:
        [[(now, uptime)]] = await self._desk.alone(Query("clock", {}))
        return Clock(now, uptime)

    async def workers(self) -> list[Worker]:
        """Nobody knows of any: those of these tables are not ours."""
        return []

    async def migrate(self) -> None:
        """Nothing is added to tables that are not ours without being asked to."""

    async def count(self) -> list[Counts]:
        def step(layout: Layout) -> Callable[[Table], Step[Counts]]:
            done = {name: number for (table, name), number in self.tally.items() if table == layout.table}
            return lambda table: count(table, done, None)

        found = []
        for layout in self._place.layouts:
            try:
                found.append(await self._looking(layout, step(layout)))
            except UNSEEN as error:
                log.warning("cannot count: %s", error)
        return found

    async def stuck(self, judge: Judge, blind: Sequence[Blind], grace: float, limit: int) -> list[Stuck]:
        """Rows that a reaper would deal with, and how. Reads only."""
        found: list[Stuck] = []
        for layout in self._place.layouts:
            with suppress(*UNSEEN):  # which is a finding of the checkup
                found += await self._looking(
                    layout, lambda table: examine.stuck(table, judge, blind, grace, limit)
                )
        return found

    async def checkup(self) -> list[Finding]:
        """What the tables lack, and what is odd about them. Reads only."""
        found: list[Finding] = []
        for layout in self._place.layouts:
            try:
                found += await self._looking(layout, examine.findings)
            except UNSEEN as error:
                found.append(finding(error))
        return found

    async def preparation(self) -> list[str]:
        """The SQL that gives the tables what they lack."""
        found: list[str] = []
        for layout in self._place.layouts:
            found += await self._desk.apart(preparation(layout))
        return list(dict.fromkeys(found))

    async def prepare(self) -> list[str]:
        """Give the tables what they lack; answers with the SQL."""
        sql = await self.preparation()
        async with self._lines.one(patience=None) as connection:
            await apply(connection, sql)
        return sql

    async def _looking(self, layout: Layout, step: Callable[[Table], Step[T]]) -> T:
        def look() -> Step[T]:
            return (yield from step((yield from probe(layout, self._place.quoted))))

        return await briefly(self._desk, layout, look, reads=True)

    async def reap(
        self,
        judge: Judge,
        limit: int,
        *,
        queues: Sequence[str] | None = None,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = GRACE,
    ) -> Reaped:
        def step(layout: Layout) -> Step[Harvest]:
            table = yield from probe(layout, self._place.quoted)
            return (yield from reap(table, judge, limit, of, blind, grace))

        chosen = [layout for layout in self._place.layouts if queues is None or layout.table in queues]
        reaped = await reap_each(self._desk, chosen, step, limit)
        for outcome in reaped.outcomes:
            if name := counter(outcome):
                self.tally[outcome.lease.queue, name] += 1
        return reaped


async def reap_each(
    desk: Desk, layouts: Sequence[Layout], step: Callable[[Layout], Step[Harvest]], limit: int
) -> Reaped:
    """One transaction a table. A table that cannot be looked at does not keep the others from it."""
    outcomes: list[Outcome] = []
    ends: list[float] = []
    troubles: list[str] = []
    failures: list[Exception] = []
    adopted, more = 0, False
    for layout in layouts:
        try:
            harvest = await briefly(desk, layout, lambda layout=layout: step(layout))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this table, the others must be helped
            failures.append(error)
            troubles.append(f"table {layout.table}: {error}")
            continue
        outcomes += harvest.outcomes
        adopted += harvest.adopted
        more |= len(harvest.outcomes) >= limit
        ends += [] if harvest.next_end is None else [harvest.next_end]
        troubles += [f"table {layout.table}: {why}" for why in harvest.refused]
    if layouts and len(failures) == len(layouts) and isinstance(failures[0], StoreUnavailable):
        raise failures[0]
    return Reaped(outcomes, adopted, min(ends, default=None), more, tuple(troubles))
