"""AdoptingStore: a PostgresStore some of whose queues are tables that others made; each is named like its table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from unstuck.abilities import Judge, Reaped
from unstuck.errors import ConfigError, SchemaError
from unstuck.layout import Layout
from unstuck.model import Beat, Event, Filter, Job, Lease, NewJob, Outcome, Ref, Settled, Verdict, Worker
from unstuck.store import Blind, Counts, Enqueued, Page, Pulse, Share
from unstuck.stores.postgres import rows, steps
from unstuck.stores.postgres.adopted import looking, working
from unstuck.stores.postgres.adopted.reaping import Harvest, reap
from unstuck.stores.postgres.adopted.table import Table, probe
from unstuck.stores.postgres.adopted.tables import reap_each
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.store import PostgresStore

T = TypeVar("T")


class AdoptingStore(PostgresStore):
    """Pauses, limits, workers and counters are ours for all queues. Rows are added by whoever owns their table, and
    never deleted; what is said of progress is not kept."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._layouts = {layout.table: layout for layout in place.layouts}
        self._known: dict[str, Table] = {}

    def twin(self) -> AdoptingStore:
        return AdoptingStore(self._place)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._refuse(jobs)
        return await super().enqueue(jobs)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        ours = {name: share for name, share in queues.items() if name not in self._layouts}
        tables = [name for name, share in queues.items() if name in self._layouts and share.limit > 0]
        await self._meet(tables)
        found: list[Job] = []
        turns = [*tables, None]
        random.shuffle(turns)  # no queue is always asked last, when there may be no room any more
        for name in turns:
            left = limit - len(found)
            if name is None:
                found += await super().lease(ours, left, owner)
            elif left > 0:
                share = queues[name]
                found += await self._in(name, lambda table: working.lease(table, share, left, owner))  # noqa: B023
        return found

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        named = list({beat.lease: beat for beat in beats}.values())
        pulse = await super().heartbeat(
            worker, [beat for beat in named if beat.lease.queue not in self._layouts]
        )
        verdicts: dict[Lease, Verdict] = dict(pulse.verdicts)
        strangers = list(pulse.strangers)
        for name in self._layouts:
            mine = [beat for beat in named if beat.lease.queue == name]
            if mine or name in worker.queues:
                told, more = await self._in(name, lambda table: working.heartbeat(table, worker.id, mine))  # noqa: B023
                verdicts |= told
                strangers += more
        return Pulse(verdicts, strangers)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        tables = {name for name in self._layouts if any(outcome.lease.queue == name for outcome in outcomes)}
        self._refuse(job for outcome in outcomes for job in outcome.then)
        if not tables:
            return await super().settle(outcomes)
        ring = self._throttle.ring(outcome.lease.queue for outcome in outcomes if rows.goes_back(outcome))
        known = {name: await self._table(name) for name in tables}
        return await self._opened().transaction(lambda: _settle(outcomes, known, ring, self._place))

    async def reap(
        self,
        judge: Judge,
        limit: int,
        owner: str,
        *,
        queues: Sequence[str] | None = None,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = 3600.0,
    ) -> Reaped:
        def step(layout: Layout) -> Step[Harvest]:
            table = self._known[layout.table] = yield from probe(layout, self._place.quoted)
            harvest = yield from reap(table, judge, limit, of, blind, grace)
            yield from working.count(table, harvest.outcomes)
            return harvest

        chosen = [layout for name, layout in self._layouts.items() if queues is None or name in queues]
        return await reap_each(self._opened(), chosen, step, limit)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.queue in self._layouts:
            offset = int(cursor) if cursor and cursor.isdecimal() else 0
            found = await self._in(which.queue, lambda table: looking.find(table, which, limit, offset))
            return Page(found, str(offset + limit) if len(found) == limit else None)
        page = await super().find(which, limit, cursor)
        if (
            which.queue is None and which.ids and cursor is None
        ):  # somebody has an id, and does not know where
            for name in self._layouts:
                page.jobs.extend((await self.find(msgspec.structs.replace(which, queue=name), limit)).jobs)
        return page

    async def count(self) -> list[Counts]:
        ours = {of.queue: of for of in await super().count()}
        for name in self._layouts:
            known = ours.get(name, Counts(queue=name))
            ours[name] = await self._in(name, lambda table: looking.count(table, known.totals, known.paused))  # noqa: B023
        return [of for _, of in sorted(ours.items())]

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        if job is None or job.queue not in self._layouts:
            return await super().events(after, job, limit)
        behind = int(after) if after and after.isdecimal() else 0
        return await self._in(job.queue, lambda table: looking.told(table, job.id, behind, limit))

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        if which.queue in self._layouts:
            return await self._in(which.queue, lambda table: working.requeue(table, which, limit))
        done = await super().requeue(which, limit)
        if which.queue is None:
            for name in self._layouts:
                done += await self.requeue(msgspec.structs.replace(which, queue=name), limit)
        return done

    async def cancel(self, refs: Sequence[Ref]) -> int:
        done = await super().cancel([ref for ref in refs if ref.queue not in self._layouts])
        for name in self._layouts:
            if ids := [ref.id for ref in refs if ref.queue == name]:
                done += await self._in(name, lambda table: working.cancel(table, ids))
        return done

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        ours = [ref for ref in refs if ref.queue not in self._layouts]
        return await super().edit(ours, priority=priority, run_at=run_at)

    async def _look(self, queues: Sequence[str]) -> tuple[bool, float | None]:
        ready, due = await super()._look(queues)
        for name in queues:
            if not ready and name in self._layouts:
                table = await self._table(name)
                [[(ready, wait)]] = await self._opened().alone(Query(table.text("work"), {"queue": name}))
                due = min((wait for wait in (due, wait) if wait is not None), default=None)
        return ready, due

    async def _in(self, name: str | None, step: Callable[[Table], Step[T]]) -> T:
        """Carry out a step on a table. A table that changed since is looked at anew, the next time."""
        assert name is not None
        table = await self._table(name)
        try:
            return await self._opened().transaction(lambda: step(table))
        except SchemaError:
            self._known.pop(name, None)
            raise

    async def _table(self, name: str) -> Table:
        if name not in self._known:
            layout = self._layouts[name]
            self._known[name] = await self._opened().apart(probe(layout, self._place.quoted))
        return self._known[name]

    def _refuse(self, jobs: Iterable[NewJob]) -> None:
        for job in jobs:
            if layout := self._layouts.get(job.queue):
                raise ConfigError(
                    f"queue {job.queue!r} is the table {job.queue}: insert a row there, "
                    f"{layout.status} = '{layout.queued}'"
                )


def _settle(
    outcomes: Sequence[Outcome], tables: Mapping[str, Table], ring: Sequence[str], place: Place
) -> Step[list[Settled]]:
    """Any outcomes, of our jobs and of foreign rows, with what follows from them. For one transaction."""
    answers: dict[int, Settled] = {}
    for name, table in tables.items():
        mine = [number for number, outcome in enumerate(outcomes) if outcome.lease.queue == name]
        for group in steps.once_each([outcomes[number] for number in mine]):
            told = yield from working.settle(table, group)
            answers |= dict(zip(mine, told, strict=False))
            mine = mine[len(group) :]
    applied = [outcomes[number] for number, answer in answers.items() if answer is Settled.APPLIED]
    yield from steps.follow(applied, place)
    ours = [number for number in range(len(outcomes)) if number not in answers]
    if ours:
        told = yield from steps.settle_all([outcomes[number] for number in ours], ring, place)
        answers |= dict(zip(ours, told, strict=True))
    return [answers[number] for number in range(len(outcomes))]
