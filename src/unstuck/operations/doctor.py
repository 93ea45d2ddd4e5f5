"""doctor(): looks at a store as an experienced operator would, and says what to do about what it finds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from unstuck.operations.explain import OFTEN, unknown
from unstuck.operations.health import CRITICAL, HEALTHY, abandoned, alive
from unstuck.operations.limits import limited
from unstuck.operations.schedules import schedule_findings, statuses
from unstuck.operations.stored_schedules import records
from unstuck.protocol.availability import Availability, Seen, runs_out
from unstuck.protocol.errors import SchemaError
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.foreign import ForeignTables, Stuck
from unstuck.protocol.job import Job, Status
from unstuck.protocol.leases import GRACE
from unstuck.protocol.operators import Counts, Filter, Finding
from unstuck.protocol.retry import judge
from unstuck.protocol.store import Store
from unstuck.text.phrases import command, counted, holder, lasting, near

SKEW = 5.0  # seconds by which the store's clock and ours may differ without a word
MANY = 100  # waiting jobs up to which a queue is not reported to grow
MOST = 1000  # jobs of a queue that are looked at
MOST_STUCK = 100  # rows of each table
MOST_WORKERS = 20  # that are well; every other one is named
LONG_WAIT = 60.0  # seconds for which the next job in line may wait beside workers with room


async def doctor(store: Store, *, seconds: float = 1.0) -> list[Finding]:
    """Findings, the store's own first. Takes two looks, so many seconds apart, to see what grows."""
    own = await store.checkup()
    clock = (await store.clock()).now
    agrees = _clock(clock)  # at once: other looks take their time
    try:
        before = await store.count()
    except SchemaError as error:
        return [
            *own,
            Finding("failure", f"the store has no place for jobs yet: {error}", "run: unstuck init"),
        ]
    await asyncio.sleep(seconds)
    after = await store.count()
    fleet = await store.fleet()
    workers = alive(fleet.workers, clock)
    schedules = statuses(fleet.slots, workers, await records(store), clock)
    return [
        *own,
        *agrees,
        *_workers(workers),
        *schedule_findings(schedules, clock),
        *[finding for counts in after for finding in await _queue(store, counts, before, workers)],
        Finding("ok", "records were not read one by one", "unstuck verify does that"),
    ]


async def doctor_tables(tables: ForeignTables) -> tuple[list[Finding], list[Stuck]]:
    """What is odd about the tables, and the rows that are stuck, with what a reaper would do about each."""
    clock = await tables.clock()
    stuck = await tables.stuck(judge, Availability().look(clock), GRACE, MOST_STUCK)
    found = [*_clock(clock.now), *await tables.checkup()]
    for counts in await tables.count():
        numbers = f"{counts.pending} wait, {counts.processing} run, {counts.completed} are done, {counts.failed} failed"
        found.append(Finding("ok", f"table {counts.queue}: {numbers}"))
        if those := [row for row in stuck if row.table == counts.queue]:
            many = f"{len(those)} or more" if len(those) >= MOST_STUCK else str(len(those))
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


def _workers(workers: Sequence[WorkerInfo]) -> list[Finding]:
    found, well = [], 0
    for worker in sorted(workers, key=lambda one: one.id):
        who = f"worker {worker.id} of {worker.host} takes {', '.join(worker.queues)}"
        if worker.health.status == HEALTHY:
            well += 1
            if well <= MOST_WORKERS:
                found.append(Finding("ok", f"{who}: {worker.running} of {worker.concurrency} run"))
            continue
        level = "failure" if worker.health.status == CRITICAL else "warning"
        fix = f"look at its log (process {worker.pid} of {worker.host})"
        if not worker.health.consuming:
            fix += "; if a handler blocks it, end that process: its jobs go to others"
        if not worker.health.recovering:
            fix = "start it without --recovery 0, or let another one recover: unstuck reap"
        found.append(Finding(level, f"{who}, and is {worker.health.status}: {worker.health.why}", fix))
    if well > MOST_WORKERS:
        found.append(Finding("ok", f"{counted(well - MOST_WORKERS, 'more worker')} alive", "unstuck top"))
    return found


async def _queue(
    store: Store, counts: Counts, before: Iterable[Counts], workers: Sequence[WorkerInfo]
) -> list[Finding]:
    if counts.trouble:
        return []  # the store's own findings say more about it
    found = [*_standing(counts, workers), *await _running(store, counts, workers)]
    found += await _waiting(store, counts, before, workers)
    if counts.dead:
        found.append(await _dead(store, counts))
    if any(finding.level != "ok" for finding in found):
        return found
    delayed = f", {counts.delayed} are delayed" if counts.delayed else ""
    text = f"queue {counts.queue}: {counts.due} wait{delayed}, {counts.processing} run"
    return [Finding("ok", text), *found]


def _standing(counts: Counts, workers: Sequence[WorkerInfo]) -> list[Finding]:
    """Whether it may run, and which workers take it."""
    name = counts.queue
    if counts.stopped:
        level = "warning" if counts.halted is None else "failure"
        return [
            Finding(
                level, f"queue {name} is {counts.stopped}", f"when that is fixed: {command('resume', name)}"
            )
        ]
    taken = {queue for worker in workers for queue in worker.queues}
    if (counts.pending or counts.expired) and name not in taken:
        what = f"{counted(counts.due, 'job')} wait" if counts.due else "jobs are to come"
        text = f"{what} in queue {name}, and no worker takes it"
        hint = f" (workers take {', '.join(sorted(taken))}: is a name misspelt?)" if near(name, taken) else ""
        level = "failure" if counts.due else "warning"
        return [Finding(level, text, f"start one: {command('worker', 'MODULE:APP', queue=name)}{hint}")]
    return []


async def _running(store: Store, counts: Counts, workers: Sequence[WorkerInfo]) -> list[Finding]:
    if not counts.processing:
        return []
    name, found = counts.queue, list[Finding]()
    clock = await store.clock()
    now = clock.now
    jobs = (await store.find(Filter(queue=name, status=Status.PROCESSING), MOST)).jobs
    if counts.expired:
        waits = _waits(jobs, Availability().look(clock))
        recovers = any(worker.health.recovering for worker in workers)
        found.append(_expired(counts, waits, recovers=recovers))
    silent = [job for job in jobs if abandoned(job, workers, now)]
    if silent:
        owners = ", ".join(sorted({holder(job.owner) for job in silent})[:3])
        text = f"{counted(len(silent), 'job')} of queue {name}: held by workers that no longer send heartbeats: {owners}"
        found.append(Finding("warning", text, _explain(silent[0])))
    return found + _crashing(name, jobs)


def _waits(jobs: Sequence[Job], seen: Seen) -> list[float]:
    """Until when leases that ran out are waited for, because the store was down meanwhile."""
    now = seen.at.timestamp()
    ended = [job for job in jobs if job.lease_until and job.lease_until.timestamp() < now]
    until = (
        runs_out(job.lease_until.timestamp(), (job.heartbeat_at or job.lease_until).timestamp(), seen)
        for job in ended
        if job.lease_until
    )
    return sorted(moment for moment in until if moment >= now)


def _expired(counts: Counts, waits: Sequence[float], *, recovers: bool) -> Finding:
    text = f"{counted(counts.expired, 'lease')} of queue {counts.queue} ran out"
    fix = "unstuck reap --once"
    if waits:
        until = f"{datetime.fromtimestamp(waits[-1], UTC):%H:%M:%S} UTC"
        text += f"; the store was down, so the workers of {len(waits)} have until {until} to send a heartbeat"
    if not recovers:
        text += ", and no living worker recovers them"
        fix += "; and start a worker without --recovery 0, or: unstuck reap"
    elif len(waits) >= counts.expired:
        return Finding("warning", text, "nothing: what is silent then is recovered")
    return Finding("failure", text, fix)


async def _waiting(
    store: Store, counts: Counts, before: Iterable[Counts], workers: Sequence[WorkerInfo]
) -> list[Finding]:
    name, takers = counts.queue, [worker for worker in workers if counts.queue in worker.queues]
    if not counts.pending or not takers or counts.stopped:
        return []
    jobs = (await store.find(Filter(queue=name, status=Status.PENDING), MOST)).jobs
    known = {task for worker in takers for task in worker.tasks}
    found = [
        Finding(
            "failure",
            f"{counted(count, 'job')}: {unknown(task, name, takers)}",
            "deploy a worker that has it",
        )
        for task, count in Counter(job.task for job in jobs if job.task not in known).most_common(5)
    ]
    found += _crashing(name, jobs)
    if again := [job for job in jobs if job.attempts and job.error]:
        kinds = Counter(job.error.code for job in again if job.error)
        text = f"{counted(len(again), 'job')} of queue {name} failed, another attempt is to come: {_kinds(kinds)}"
        found.append(Finding("ok", text, _explain(again[0])))  # retries are nothing unusual
    if counts.due and (limit := await limited(store, counts, takers)):
        return [*found, limit]
    room = any(worker.running < worker.concurrency and worker.health.consuming for worker in takers)
    if counts.waited is not None and counts.waited > LONG_WAIT and room:
        text = f"the next job of queue {name} has been due for {lasting(counts.waited)}, and workers have room, yet nobody takes it"
        found.append(Finding("warning", text, "somebody may hold a lock on it: see the findings about locks"))
    past = next((of for of in before if of.queue == name), Counts(queue=name))
    if counts.due > MANY and counts.due > past.due:
        text = f"queue {name} grows: {counts.due} jobs wait, {counts.due - past.due} more than a moment ago"
        found.append(Finding("warning", text, "start more workers, or give them more --concurrency"))
    return found


def _crashing(queue: str, jobs: Sequence[Job]) -> list[Finding]:
    return [
        Finding(
            "warning",
            f"job {job.id} of queue {queue} lost its worker {job.crashes} times, {_budget(job)}",
            f"if it kills them: {command('cancel', job.id, queue=queue)}",
        )
        for job in jobs
        if job.crashes >= OFTEN
    ][:5]


def _budget(job: Job) -> str:
    if job.max_crashes is None:
        return f"in {counted(job.attempts, 'attempt')} of {job.max_attempts}"
    return f"and after {job.max_crashes} it fails for good"


def _explain(job: Job) -> str:
    return command("explain", job.id, queue=job.queue)


async def _dead(store: Store, counts: Counts) -> Finding:
    """What failed for good, by kind: only some of it is worth another try."""
    name = counts.queue
    jobs = (await store.find(Filter(queue=name, dead=True), MOST)).jobs
    kinds = Counter(job.error.code if job.error else "" for job in jobs)
    text = f"{counted(counts.dead, 'dead letter')} in queue {name}: {_kinds(kinds)}"
    commonest = max(kinds, key=kinds.__getitem__, default="")
    again = command("retry", *(["--code", commonest] if commonest else []), queue=name)
    return Finding(
        "warning", text, f"look: {command('dead', queue=name)}; when the cause of a kind is fixed: {again}"
    )


def _kinds(kinds: Counter[str]) -> str:
    named = kinds.most_common(5)
    others = kinds.total() - sum(count for _, count in named)
    text = [f"{count} {code or 'of unknown cause'}" for code, count in named]
    return ", ".join([*text, f"{others} others"] if others else text)
