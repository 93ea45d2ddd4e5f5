"""AdoptingStore: a PostgresStore some of whose queues are foreign tables. Such a queue has the name of its table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

import msgspec

from unstuck.protocol.availability import Seen
from unstuck.protocol.errors import ConfigError, PartlySettled, SchemaError, StoreError, StoreUnavailable
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.foreign import Judge, Reaped, Stuck
from unstuck.protocol.job import Category, Enqueued, Failure, Job, Lease, NewJob, Ref
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Recovery, Share, Verdict
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled, failed
from unstuck.stores.postgres import steps
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.foreign import examine, looking, working
from unstuck.stores.postgres.foreign.careful import asking
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.stores.postgres.foreign.line import Line
from unstuck.stores.postgres.foreign.locked import UNSEEN, Locked, briefly, finding
from unstuck.stores.postgres.foreign.reaping import Harvest, reap
from unstuck.stores.postgres.foreign.table import Table, probe
from unstuck.stores.postgres.foreign.tables import reap_each
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.store import PostgresStore
from unstuck.stores.shared.listing import behind

log = logging.getLogger("unstuck.postgres")
T = TypeVar("T")


class AdoptingStore(PostgresStore):
    """Pauses, limits, workers and counters of all queues are in our schema, and so are records. Rows are added by the owner of their table, and
    never deleted; progress is not kept."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._layouts = {layout.table: layout for layout in address.layouts}
        self._known: dict[str, Table] = {}

    def is_table(self, queue: str) -> bool:
        return queue in self._layouts

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._refuse(jobs)
        return await super().enqueue(jobs)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """Each table is asked for the part that its turns give it, and all our own queues together for theirs; what some of
        them leave is given to the others. If a table fails, the others are still asked, and what they gave is returned."""
        ours = {name: share for name, share in queues.items() if name not in self._layouts}
        if len(ours) == len(queues):
            return await super().lease(ours, limit, owner)
        if len(ours) > 1:
            ours = {name: ours[name] for name in await self._found(ours)}
        line = Line({name: share for name, share in queues.items() if name in self._layouts or name in ours})
        await self._meet([name for name in queues if name in self._layouts])
        found: list[Job] = []
        failures: list[StoreError] = []
        asked = 0
        while parts := line.parts(limit - len(found)):
            together = {name: many for name, many in parts.items() if name in ours}
            each = [{name: many} for name, many in parts.items() if name not in ours]
            for part in [*each, *([together] if together else [])]:
                asked += 1
                some: list[Job] = []
                try:
                    some = await self._part(
                        {name: queues[name]._replace(limit=part[name]) for name in part}, owner
                    )
                except StoreError as error:
                    failures.append(error)
                found += some
                line.taken(part, (job.queue for job in some))
        _raise_or_log(failures, all_of_them=len(failures) == asked)
        return found

    async def _part(self, queues: Mapping[str, Share], owner: str) -> list[Job]:
        """Lease from one table, or from queues of our own."""
        limit = sum(share.limit for share in queues.values())
        [name, *_] = queues
        if name in self._layouts:
            return await self._in(name, lambda table: working.lease(table, queues[name], limit, owner))
        return await super().lease(queues, limit, owner)

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
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
                answered, more = await self._in(name, lambda table: working.heartbeat(table, worker.id, mine))  # noqa: B023
            except StoreError as error:
                failures.append(error)
                continue
            verdicts |= answered
            strangers += more
        _raise_or_log(failures, all_of_them=False)
        return HeartbeatAnswer(verdicts, strangers)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Our jobs in one transaction and each table in another, so that the failure of one does not affect the others."""
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
                settled = await (super().settle(some) if name is None else self._settle(name, some))
            except StoreError as error:
                failures.append(error)
            else:
                answers |= dict(zip(mine, settled, strict=True))
        if failures and answers and all(isinstance(error, StoreUnavailable) for error in failures):
            partial = [answers.get(number) for number in range(len(outcomes))]
            raise PartlySettled(str(failures[0]), partial) from failures[0]
        if failures:  # when the call is repeated, the outcomes that were written are answered as repeated
            raise failures[0]
        return [answers[number] for number in range(len(outcomes))]

    async def _settle(self, name: str, outcomes: Sequence[Outcome]) -> list[Settled]:
        return await self._in(
            name,
            lambda table: steps.settle_all(outcomes, lambda some: working.settle(table, some), self._address),
        )

    async def reap(self, judge: Judge, recovery: Recovery) -> Reaped:
        def step(layout: Layout) -> Step[Harvest]:
            table = self._known[layout.table] = yield from probe(
                layout, self._address.quoted, self._address.warned
            )
            harvest = yield from reap(table, judge, recovery)
            yield from working.count(table, harvest.outcomes)
            return harvest

        return await reap_each(self._opened(), self._address.layouts, step, recovery)

    async def stuck(self, judge: Judge, seen: Seen, grace: float, limit: int) -> list[Stuck]:
        found: list[Stuck] = []
        for name in self._layouts:
            with suppress(*UNSEEN):  # the checkup reports it
                found += await self._see(name, lambda table: examine.stuck(table, judge, seen, grace, limit))
        return found

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.queue in self._layouts:
            offset = int(cursor) if cursor and cursor.isdecimal() else 0
            found = await self._see(which.queue, lambda table: looking.find(table, which, limit, offset))
            return Page(found, str(offset + limit) if len(found) == limit else None)
        page = await super().find(which, limit, cursor)
        if (
            which.queue is None and which.ids and cursor is None
        ):  # the caller does not know in which queue they are
            failures: list[StoreError] = []
            for name in self._layouts:
                try:
                    page.jobs.extend(
                        (await self.find(msgspec.structs.replace(which, queue=name), limit)).jobs
                    )
                except Locked as error:  # a row may be in there, also one with the id of a job that was found
                    fix = f"{error.finding.fix}; or say which queue has it"
                    raise Locked(msgspec.structs.replace(error.finding, fix=fix)) from error
                except SchemaError as error:  # its rows could not be used anyway
                    failures.append(error)
            _raise_or_log(failures, all_of_them=not page.jobs)
        return page

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        ours = {of.queue: of for of in await super().count(ahead_of)}
        for name in self._layouts:
            known = ours.get(name, Counts(queue=name))
            try:
                ours[name] = await self._see(
                    name,
                    lambda table: looking.count(table, known),  # noqa: B023
                )
            except UNSEEN as error:
                log.warning("%s", error)
                ours[name] = msgspec.structs.replace(known, trouble=finding(error).what)
        return [of for _, of in sorted(ours.items())]

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        if job is None or job.queue not in self._layouts:
            return await super().events(after, job, limit)
        return await self._see(
            job.queue, lambda table: looking.row_events(table, job.id, behind(after), limit)
        )

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        found = await super().checkup(deep=deep)
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
        if which.queue is None and which.ids:  # as in find: tables are only searched for ids
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
                with suppress(Locked):  # a lease from it reports that
                    [(ready, wait)] = await self._see(
                        name, lambda table: asking(Query(table.text("work"), {"queue": table.layout.table}))
                    )
                    due = min((wait for wait in (due, wait) if wait is not None), default=None)
        return ready, due

    async def _in(self, name: str, step: Callable[[Table], Step[T]], *, reads: bool = False) -> T:
        """Carry out a step on a table. If the table has changed, its columns are read again for the next step."""
        table = await self._table(name)
        try:
            return await briefly(self._opened(), table.layout, lambda: step(table), reads=reads)
        except SchemaError as error:
            self._known.pop(name, None)
            raise SchemaError(
                f"table {name!r} has changed, its columns will be read again: {error}"
            ) from error

    async def _see(self, name: str, step: Callable[[Table], Step[T]]) -> T:
        return await self._in(name, step, reads=True)

    async def _table(self, name: str) -> Table:
        if name not in self._known:
            layout = self._layouts[name]
            self._known[name] = await self._opened().apart(
                probe(layout, self._address.quoted, self._address.warned)
            )
        return self._known[name]

    def _possible(self, outcome: Outcome) -> Outcome:
        """The outcome, or a failure if its follow-up jobs cannot be enqueued: that would fail each time."""
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


def _raise_or_log(failures: Sequence[StoreError], *, all_of_them: bool) -> None:
    """Log the failures; if nothing succeeded, raise the first one instead."""
    for error in failures:
        if all_of_them:
            raise error
        log.warning("%s", error)
