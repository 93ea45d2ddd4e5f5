"""AdoptingStore: a PostgresStore some of whose queues are tables that others made; each is named like its table."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec

from unstuck.abilities import Judge, Reaped
from unstuck.errors import ConfigError, PartlySettled, SchemaError, StoreError, StoreUnavailable
from unstuck.layout import Layout
from unstuck.model import (
    Beat,
    Category,
    Event,
    Failure,
    Filter,
    Job,
    Lease,
    NewJob,
    Outcome,
    Ref,
    Settled,
    Verdict,
    Worker,
    failed,
)
from unstuck.store import GRACE, Blind, Counts, Enqueued, Finding, Page, Pulse, Share
from unstuck.stores.listing import behind
from unstuck.stores.postgres import steps
from unstuck.stores.postgres.adopted import examine, looking, working
from unstuck.stores.postgres.adopted.careful import asking
from unstuck.stores.postgres.adopted.locked import UNSEEN, Locked, briefly, finding
from unstuck.stores.postgres.adopted.reaping import Harvest, reap
from unstuck.stores.postgres.adopted.table import Table, probe
from unstuck.stores.postgres.adopted.tables import reap_each
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.store import PostgresStore

log = logging.getLogger("unstuck.postgres")
T = TypeVar("T")


class AdoptingStore(PostgresStore):
    """Pauses, limits, workers and counters are ours for all queues. Rows are added by whoever owns their table, and
    never deleted; what is said of progress is not kept."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._layouts = {layout.table: layout for layout in place.layouts}
        self._known: dict[str, Table] = {}

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._refuse(jobs)
        return await super().enqueue(jobs)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """A table that fails us does not keep the other queues from being asked, nor loses what they gave."""
        ours = {name: share for name, share in queues.items() if name not in self._layouts}
        tables = [name for name, share in queues.items() if name in self._layouts and share.limit > 0]
        await self._meet(tables)
        found: list[Job] = []
        failures: list[StoreError] = []
        turns = [*tables, *([None] if ours else [])]
        random.shuffle(turns)  # no queue is always asked last, when there may be no room any more
        for name in turns:
            left = limit - len(found)
            if left < 1:
                break
            try:
                if name is None:
                    found += await super().lease(ours, left, owner)
                else:
                    share = queues[name]
                    found += await self._in(name, lambda table: working.lease(table, share, left, owner))  # noqa: B023
            except StoreError as error:
                failures.append(error)
        _tell(failures, all_of_them=len(failures) == len(turns))
        return found

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        named = list({beat.lease: beat for beat in beats}.values())
        ours = [beat for beat in named if beat.lease.queue not in self._layouts]
        pulse = await super().heartbeat(worker, ours)
        verdicts: dict[Lease, Verdict] = dict(pulse.verdicts)
        strangers, failures = list(pulse.strangers), []
        for name in self._layouts:
            mine = [beat for beat in named if beat.lease.queue == name]
            if not mine and name not in worker.queues:
                continue
            try:
                told, more = await self._in(name, lambda table: working.heartbeat(table, worker.id, mine))  # noqa: B023
            except StoreError as error:
                failures.append(error)
                continue
            verdicts |= told
            strangers += more
        _tell(failures, all_of_them=False)
        return Pulse(verdicts, strangers)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Our jobs in one transaction and each table in another: if one fails, the others are not held up by it."""
        outcomes = [self._possible(outcome) for outcome in outcomes]
        answers: dict[int, Settled] = {}
        failures: list[StoreError] = []
        for name in (*self._layouts, None):
            mine = [
                number
                for number, outcome in enumerate(outcomes)
                if outcome.lease.queue == name or (name is None and outcome.lease.queue not in self._layouts)
            ]
            if not mine:
                continue
            some = [outcomes[number] for number in mine]
            try:
                told = await (super().settle(some) if name is None else self._settle(name, some))
            except StoreError as error:
                failures.append(error)
            else:
                answers |= dict(zip(mine, told, strict=True))
        if failures and answers and all(isinstance(error, StoreUnavailable) for error in failures):
            some_told = [answers.get(number) for number in range(len(outcomes))]
            raise PartlySettled(str(failures[0]), some_told) from failures[0]
        if failures:  # asked again, those that were written are answered as repeated
            raise failures[0]
        return [answers[number] for number in range(len(outcomes))]

    async def _settle(self, name: str, outcomes: Sequence[Outcome]) -> list[Settled]:
        return await self._in(
            name,
            lambda table: steps.settle_all(outcomes, lambda some: working.settle(table, some), self._place),
        )

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
            table = self._known[layout.table] = yield from probe(layout, self._place.quoted)
            harvest = yield from reap(table, judge, limit, of, blind, grace)
            yield from working.count(table, harvest.outcomes)
            return harvest

        chosen = [layout for name, layout in self._layouts.items() if queues is None or name in queues]
        return await reap_each(self._opened(), chosen, step, limit)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.queue in self._layouts:
            offset = int(cursor) if cursor and cursor.isdecimal() else 0
            found = await self._see(which.queue, lambda table: looking.find(table, which, limit, offset))
            return Page(found, str(offset + limit) if len(found) == limit else None)
        page = await super().find(which, limit, cursor)
        if which.queue is None and which.ids and cursor is None:  # somebody does not know where they are
            failures: list[StoreError] = []
            for name in self._layouts:
                try:
                    page.jobs.extend(
                        (await self.find(msgspec.structs.replace(which, queue=name), limit)).jobs
                    )
                except Locked as error:  # one may be in there, also one with the id of another
                    fix = f"{error.finding.fix}; or say which queue has it"
                    raise Locked(msgspec.structs.replace(error.finding, fix=fix)) from error
                except SchemaError as error:  # nobody could do anything with what is in there
                    failures.append(error)
            _tell(failures, all_of_them=not page.jobs)
        return page

    async def count(self) -> list[Counts]:
        ours = {of.queue: of for of in await super().count()}
        for name in self._layouts:
            known = ours.get(name, Counts(queue=name))
            try:
                ours[name] = await self._see(
                    name,
                    lambda table: looking.count(table, known.totals, known.paused),  # noqa: B023
                )
            except UNSEEN as error:
                log.warning("%s", error)
                ours[name] = msgspec.structs.replace(known, trouble=finding(error).what)
        return [of for _, of in sorted(ours.items())]

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        if job is None or job.queue not in self._layouts:
            return await super().events(after, job, limit)
        return await self._see(job.queue, lambda table: looking.told(table, job.id, behind(after), limit))

    async def checkup(self) -> list[Finding]:
        found = await super().checkup()
        for name in self._layouts:
            try:
                found += await self._see(name, examine.findings)
            except UNSEEN as error:
                found.append(finding(error))
        return found

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        if which.queue in self._layouts:
            return await self._in(which.queue, lambda table: working.requeue(table, which, limit))
        done = await super().requeue(which, limit)
        if which.queue is None and which.ids:  # as in find: without a name a table is not meant
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
        done = 0
        for name in self._layouts:
            if ids := [ref.id for ref in refs if ref.queue == name]:
                done += await self._in(name, lambda table: working.edit(table, ids, priority, run_at))
        ours = [ref for ref in refs if ref.queue not in self._layouts]
        return done + await super().edit(ours, priority=priority, run_at=run_at)

    async def _look(self, queues: Sequence[str]) -> tuple[bool, float | None]:
        ready, due = await super()._look(queues)
        for name in queues:
            if not ready and name in self._layouts:
                with suppress(Locked):  # who leases from it says so
                    [(ready, wait)] = await self._see(
                        name, lambda table: asking(Query(table.text("work"), {"queue": table.layout.table}))
                    )
                    due = min((wait for wait in (due, wait) if wait is not None), default=None)
        return ready, due

    async def _in(self, name: str, step: Callable[[Table], Step[T]], *, reads: bool = False) -> T:
        """Carry out a step on a table. A table that changed since is looked at anew, the next time."""
        table = await self._table(name)
        try:
            return await briefly(self._opened(), table.layout, lambda: step(table), reads=reads)
        except SchemaError as error:
            self._known.pop(name, None)
            raise SchemaError(
                f"table {name!r} is not what it was, it will be looked at anew: {error}"
            ) from error

    async def _see(self, name: str, step: Callable[[Table], Step[T]]) -> T:
        return await self._in(name, step, reads=True)

    async def _table(self, name: str) -> Table:
        if name not in self._known:
            layout = self._layouts[name]
            self._known[name] = await self._opened().apart(probe(layout, self._place.quoted))
        return self._known[name]

    def _possible(self, outcome: Outcome) -> Outcome:
        """The outcome, unless what should follow cannot be: then the job has failed, as it would each time."""
        try:
            self._refuse(outcome.then)
        except ConfigError as error:
            failure = Failure(category=Category.PERMANENT, code="ConfigError", message=str(error))
            return failed(outcome.lease, failure)
        return outcome

    def _refuse(self, jobs: Iterable[NewJob]) -> None:
        for job in jobs:
            if layout := self._layouts.get(job.queue):
                raise ConfigError(
                    f"queue {job.queue!r} is the table {job.queue}: insert a row there, "
                    f"{layout.status} = '{layout.queued}'"
                )


def _tell(failures: Sequence[StoreError], *, all_of_them: bool) -> None:
    """Raise if nobody answered, else only say so."""
    for error in failures:
        if all_of_them:
            raise error
        log.warning("%s", error)
