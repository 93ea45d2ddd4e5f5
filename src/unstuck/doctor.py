"""doctor(): looks at a store as an experienced operator would, and says what to do about what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from unstuck.abilities import Judge, Stuck
from unstuck.errors import SchemaError
from unstuck.health import alive
from unstuck.judge import judge
from unstuck.model import Worker
from unstuck.reaper import FOREVER
from unstuck.store import Blind, Clock, Counts, Finding, Store

SKEW = 5.0  # seconds by which the store's clock and ours may differ without a word
MANY = 100  # waiting jobs below which a queue is not said to grow


async def doctor(store: Store, *, seconds: float = 1.0) -> list[Finding]:
    """Findings, the store's own first. Takes two looks, so many seconds apart, to see what grows."""
    own = await store.checkup()
    clock = (await store.clock()).now
    try:
        before = await store.count()
    except SchemaError as error:
        return [
            *own,
            Finding("failure", f"the store has no place for jobs yet: {error}", "run: unstuck init"),
        ]
    await asyncio.sleep(seconds)
    after = await store.count()
    workers = alive(await store.workers(), clock)
    return [
        *own,
        *_clock(clock),
        *_workers(workers),
        *(finding for counts in after for finding in _queue(counts, before, workers)),
    ]


class Tables(Protocol):
    """Tables of jobs that are not ours."""

    async def clock(self) -> Clock: ...

    async def count(self) -> list[Counts]: ...

    async def checkup(self) -> list[Finding]: ...

    async def stuck(self, judge: Judge, blind: Sequence[Blind], grace: float, limit: int) -> list[Stuck]: ...


async def doctor_tables(
    tables: Tables, *, grace: float = 3600.0, limit: int = 100
) -> tuple[list[Finding], list[Stuck]]:
    """What is odd about the tables, and the rows that are stuck, with what a reaper would do about each."""
    clock = await tables.clock()
    stuck = await tables.stuck(judge, [Blind(FOREVER, clock.uptime)], grace, limit)
    found = [*_clock(clock.now), *await tables.checkup()]
    for counts in await tables.count():
        numbers = f"{counts.pending} wait, {counts.processing} run, {counts.completed} are done, {counts.failed} failed"
        found.append(Finding("ok", f"table {counts.queue}: {numbers}"))
        if those := [row for row in stuck if row.table == counts.queue]:
            many = f"{len(those)} or more" if len(those) >= limit else str(len(those))
            fix = f"unstuck reap --store … --table {counts.queue} --once, or keep it running without --once"
            found.append(Finding("failure", f"{many} rows of table {counts.queue} are stuck", fix))
    return found, stuck


def _clock(there: datetime) -> list[Finding]:
    ahead = (there - datetime.now(UTC)).total_seconds()
    if abs(ahead) <= SKEW:
        return [Finding("ok", "the store's clock agrees with this host's")]
    return [
        Finding(
            "warning",
            f"the store's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this host's",
            "leases do not mind; set the clocks for logs and schedules to make sense",
        )
    ]


def _workers(workers: Sequence[Worker]) -> list[Finding]:
    found = [Finding("ok", f"{len(workers)} workers are alive")] if workers else []
    return found + [
        Finding(
            "failure" if worker.health.status == "CRITICAL" else "warning",
            f"worker {worker.id} is {worker.health.status}: {worker.health.why}",
            "look at its log",
        )
        for worker in workers
        if worker.health.status != "HEALTHY"
    ]


def _queue(counts: Counts, before: Iterable[Counts], workers: Sequence[Worker]) -> list[Finding]:
    name, found = counts.queue, []
    due = counts.pending - counts.delayed
    if counts.paused is not None:
        level = "failure" if counts.paused.startswith("CRITICAL") else "warning"
        told = f"queue {name} is paused: {counts.paused}"
        found.append(Finding(level, told, f"when that is mended: unstuck resume {name}"))
    elif due and not any(name in worker.queues for worker in workers):
        found.append(
            Finding("failure", f"{due} jobs wait in queue {name}, and no worker takes it", "start one")
        )
    if counts.expired:
        told = f"{counts.expired} jobs of queue {name} are stuck: their leases ran out"
        found.append(Finding("failure", told, "start a worker, or: unstuck reap --once"))
    past = next((of for of in before if of.queue == name), Counts(queue=name))
    if due > MANY and due > past.pending - past.delayed:
        told = (
            f"queue {name} grows: {due} jobs wait, {due - past.pending + past.delayed} more than a moment ago"
        )
        found.append(Finding("warning", told, "start more workers, or give them more --concurrency"))
    if dead := counts.failed - counts.cancelled:
        told = f"{dead} dead letters in queue {name}"
        found.append(
            Finding("warning", told, f"look: unstuck dead --queue {name}; then: unstuck retry --queue {name}")
        )
    return found or [Finding("ok", f"queue {name}: {due} wait, {counts.processing} run")]
