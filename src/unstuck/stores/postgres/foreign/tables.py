"""Tables: foreign tables for a reaper. It needs no schema or column of ours, and no right to create any."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from unstuck.protocol.availability import Clock, Seen
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import Fleet
from unstuck.protocol.foreign import Judge, Reaped, Stuck
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Counts, Finding
from unstuck.protocol.outcome import Outcome
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.connections import Connections
from unstuck.stores.postgres.foreign import examine
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.stores.postgres.foreign.locked import UNSEEN, briefly, finding
from unstuck.stores.postgres.foreign.looking import count
from unstuck.stores.postgres.foreign.prepare import apply, preparation
from unstuck.stores.postgres.foreign.reaping import Harvest, reap
from unstuck.stores.postgres.foreign.table import Table, probe
from unstuck.stores.postgres.round_trips import RoundTrips
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.statements import statements_for
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.events import reaped as counter

log = logging.getLogger("unstuck.postgres")
T = TypeVar("T")
Tally = Counter[tuple[str, str]]


class Tables:
    """``tally`` counts what was done since the start, by table and counter."""

    def __init__(self, address: Address, tally: Tally | None = None) -> None:
        self._address = address
        self.tally: Tally = Counter() if tally is None else tally

    async def __aenter__(self) -> Self:
        self._connections = Connections(self._address)
        self._trips = RoundTrips(
            self._connections, {name: text.encode() for name, text in statements_for(self._address).items()}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connections.fork_guard.forked:
            return
        await self._trips.close()
        await self._connections.close()

    def twin(self) -> Tables:
        """Another view of the same tables with connections of its own, and the same tally."""
        return Tables(self._address, self.tally)

    async def clock(self) -> Clock:
        [[(now, uptime)]] = await self._trips.alone(Query("clock", {}))
        return Clock(now, uptime)

    async def fleet(self) -> Fleet:
        """Empty: the workers of these tables are not ours, and not known."""
        return Fleet([], {})

    async def migrate(self) -> None:
        """Does nothing: only ``prepare`` adds something to foreign tables."""

    async def count(self) -> list[Counts]:
        def step(layout: Layout) -> Callable[[Table], Step[Counts]]:
            done = {name: number for (table, name), number in self.tally.items() if table == layout.table}
            return lambda table: count(table, Counts(queue=layout.table, totals=done))

        found = []
        for layout in self._address.layouts:
            try:
                found.append(await self._looking(layout, step(layout)))
            except UNSEEN as error:
                log.warning("cannot count: %s", error)
        return found

    async def stuck(self, judge: Judge, seen: Seen, grace: float, limit: int) -> list[Stuck]:
        """Rows that a reaper would settle or lease, and how. Only reads."""
        found: list[Stuck] = []
        for layout in self._address.layouts:
            with suppress(*UNSEEN):  # the checkup reports it
                found += await self._looking(
                    layout, lambda table: examine.stuck(table, judge, seen, grace, limit)
                )
        return found

    async def checkup(self) -> list[Finding]:
        """What the tables lack, and what is wrong with them. Only reads."""
        found: list[Finding] = []
        for layout in self._address.layouts:
            try:
                found += await self._looking(layout, examine.findings)
            except UNSEEN as error:
                found.append(finding(error))
        return found

    async def preparation(self) -> list[str]:
        """The SQL that adds what the tables lack."""
        found: list[str] = []
        for layout in self._address.layouts:
            found += await self._trips.apart(preparation(layout))
        return list(dict.fromkeys(found))

    async def prepare(self) -> list[str]:
        """Add what the tables lack; returns the SQL."""
        sql = await self.preparation()
        async with self._connections.one(patience=None) as connection:
            await apply(connection, sql)
        return sql

    async def _looking(self, layout: Layout, step: Callable[[Table], Step[T]]) -> T:
        def look() -> Step[T]:
            return (yield from step((yield from probe(layout, self._address.quoted, self._address.warned))))

        return await briefly(self._trips, layout, look, reads=True)

    async def reap(self, judge: Judge, recovery: Recovery) -> Reaped:
        def step(layout: Layout) -> Step[Harvest]:
            table = yield from probe(layout, self._address.quoted, self._address.warned)
            return (yield from reap(table, judge, recovery))

        reaped = await reap_each(self._trips, self._address.layouts, step, recovery)
        for outcome in reaped.outcomes:
            if name := counter(outcome):
                self.tally[outcome.lease.queue, name] += 1
        return reaped


async def reap_each(
    trips: RoundTrips, layouts: Sequence[Layout], step: Callable[[Layout], Step[Harvest]], recovery: Recovery
) -> Reaped:
    """One transaction for each table of the recovery. A table that fails does not keep the others from being reaped."""
    layouts = [layout for layout in layouts if recovery.queues is None or layout.table in recovery.queues]
    outcomes: list[Outcome] = []
    ends: list[float] = []
    troubles: list[str] = []
    failures: list[Exception] = []
    adopted, more = 0, False
    for layout in layouts:
        try:
            harvest = await briefly(trips, layout, lambda layout=layout: step(layout))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this table, the others must be reaped
            failures.append(error)
            troubles.append(f"table {layout.table}: {error}")
            continue
        outcomes += harvest.outcomes
        adopted += harvest.adopted
        more |= len(harvest.outcomes) >= recovery.limit
        ends += [] if harvest.next_end is None else [harvest.next_end]
        troubles += [f"table {layout.table}: {why}" for why in harvest.refused]
    if layouts and len(failures) == len(layouts) and isinstance(failures[0], StoreUnavailable):
        raise failures[0]
    return Reaped(outcomes, adopted, min(ends, default=None), more, tuple(troubles))
