"""explain(): why a job is where it is, and what can be done about it, in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from unstuck.operations.health import WORKER_SILENT, abandoned, alive
from unstuck.operations.limits import lane_full, limited
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.foreign import Parental
from unstuck.protocol.ids import keyed_id
from unstuck.protocol.job import Category, Ending, Job, Ref, Status
from unstuck.protocol.operators import Counts, Event, Filter
from unstuck.protocol.retry import judge
from unstuck.protocol.store import Store
from unstuck.stores.shared.events import UNREADABLE
from unstuck.text.phrases import ago, command, counted, holder, lasting, near

OFTEN = 2  # crashes after which a job is suspected of causing them
PROMPT = 5.0  # seconds within which a free worker takes the next job
LATEST = 100  # events of a job that are shown


async def explain(store: Store, job: Job) -> str:
    now = (await store.clock()).now
    match job.status:
        case Status.COMPLETED:
            return f"It completed {ago(job.finished_at, now)}.{_taken(job)}"
        case Status.FAILED if job.expired:
            again = f"to run it all the same: {command('retry', job.id, queue=job.queue)}"
            return f"It expired {ago(job.finished_at, now)}: no worker had started it. If it is still wanted, {again}{_taken(job)}"
        case Status.FAILED if job.cancelled:
            return f"It was cancelled {ago(job.finished_at, now)}.{_taken(job)}"
        case Status.FAILED:
            return f"{_failed(job, now)}{_taken(job)}{_again(job)}"
        case Status.PROCESSING:
            return await _held(store, job, now) + _crashes(job)
        case Status.PENDING:
            return await _waiting(store, job, now) + _crashes(job)


def _failed(job: Job, now: datetime) -> str:
    cause = f"{job.error.code}: {job.error.message}" if job.error else "no error was recorded"
    tries = f"{job.spent} of {counted(job.max_attempts, 'attempt')}"
    lost = f" and {counted(job.crashes, 'crash')}" if job.max_crashes is not None and job.crashes else ""
    return f"It failed {ago(job.finished_at, now)} after {tries}{lost} ({cause})."


def _taken(job: Job) -> str:
    """Why enqueueing it again did nothing. A spaced job has an id of its own: its key is free when the interval is over."""
    if not job.key or job.id != keyed_id(job.queue, job.key):
        return ""
    other = command("enqueue", job.task, "{…}", "--key", job.key, "--again", queue=job.queue)
    return f" Its key {job.key!r} stays taken: enqueueing it again changes nothing. To run it with other arguments: {other}."


def _again(job: Job) -> str:
    """Whether it is worth running it as it is."""
    if job.error is not None and job.error.code == UNREADABLE.code:
        return " Running it as it is would not help: enqueue it again."
    again = f"to run it as it is: {command('retry', job.id, queue=job.queue)}"
    if job.error is not None and job.error.category is Category.PERMANENT:
        return f" It would fail again, unless what the error says is fixed; then, {again}"
    return f" When the cause is fixed, {again}"


def _crashes(job: Job) -> str:
    if job.crashes < OFTEN:
        return ""
    if job.max_crashes is None:
        left = f"it has {counted(max(0, job.max_attempts - job.attempts), 'attempt')} left"
    else:
        left = f"after {job.max_crashes} it fails for good"
    return (
        f" Its workers died or fell silent {job.crashes} times while they ran it, and {left}: if it kills them, stop it: "
        f"{command('cancel', job.id, queue=job.queue)}"
    )


async def _held(store: Store, job: Job, now: datetime) -> str:
    workers = alive((await store.fleet()).workers, now)
    held = f"It is held by {holder(job.owner)}"
    if job.lease_until is None:
        return (
            f"{held}{_since(job, now)}, which sets no lease. A reaper gives it one when it was silent for an hour, and takes it "
            f"back when that is over.{_sooner(job)}"
        )
    left = (job.lease_until - now).total_seconds()
    silent = None if job.heartbeat_at is None else (now - job.heartbeat_at).total_seconds()
    if left <= 0:
        return _overdue(job, -left, silent, workers)
    stage = f" (stage {job.stage})" if job.stage else ""
    if job.can_expire:
        return f"It expired before a worker started it, and {holder(job.owner)} is about to fail it."
    end = (
        "it runs again"
        if judge(job).ending is Ending.RETRIED
        else "it fails for good: it has no attempt left"
    )
    if not _recovering(workers):
        end = f"somebody has to recover it (unstuck reap --once): then {end}"
    then = f"Its lease{stage} lasts for another {lasting(left)}, then {end}.{_sooner(job)}"
    if not any(worker.id == job.owner for worker in workers) and await _adopted(store, job):
        return f"{held}, which set no lease and sends no heartbeats; a reaper gave it one. {then}"
    if silent is not None and abandoned(job, workers, now):
        return f"{held}, which sent its last heartbeat {lasting(silent)} ago: it is dead or frozen. {then}"
    so_far = (
        "" if job.started_at is None else f", for {lasting((now - job.started_at).total_seconds())} so far"
    )
    return f"It is running{so_far}: held by {holder(job.owner)} for another {lasting(left)} unless renewed."


def _sooner(job: Job) -> str:
    if not job.owner or not job.fence:  # others hold it, by means of their own
        return ""
    return f" Sooner, if that process is gone: {command('release', job.id, '--owner', job.owner)}"


async def _adopted(store: Store, job: Job) -> bool:
    """Whether its lease is one that a reaper gave it."""
    events = await latest(store, job.ref)
    return bool(events) and events[-1].type == "reaper:adopted"


async def latest(store: Store, ref: Ref) -> list[Event]:
    """The last events of a job; stores list them from the beginning."""
    events = page = await store.events(job=ref, limit=LATEST)
    while len(page) == LATEST:
        page = await store.events(page[-1].cursor, ref, LATEST)
        events = [*events, *page][-LATEST:]
    return events


def _overdue(job: Job, overdue: float, silent: float | None, workers: Sequence[WorkerInfo]) -> str:
    over = f"Its lease by {holder(job.owner)} ran out {lasting(overdue)} ago"
    if silent is not None and silent < min(overdue, WORKER_SILENT):
        return (
            f"{over}, but it sent a heartbeat {lasting(silent)} ago: while it does, reapers leave it alone. If it hangs, stop that "
            "process."
        )
    if overdue < WORKER_SILENT or _recovering(workers):
        return f"{over}; the next reaper will take it back."
    nobody = "no worker that is alive recovers" if workers else "no worker is alive"
    return f"{over}, and nobody takes it back: {nobody}. Now: unstuck reap --once"


def _recovering(workers: Sequence[WorkerInfo]) -> bool:
    return any(worker.health.recovering for worker in workers)


async def _waiting(store: Store, job: Job, now: datetime) -> str:
    if awaited := await _children(store, job):
        return awaited
    if job.can_expire and job.expires_at is not None and job.expires_at <= now:
        return await _too_late(store, job.expires_at, now)
    counts = next((of for of in await store.count(job.ref) if of.queue == job.queue), Counts(queue=job.queue))
    if counts.stopped:
        return f"Queue {job.queue!r} is {counts.stopped}. When that is fixed: {command('resume', job.queue)}"
    workers = alive((await store.fleet()).workers, now)
    takers = [worker for worker in workers if job.queue in worker.queues]
    if takers and not any(job.task in worker.tasks for worker in takers):
        return unknown(job.task, job.queue, takers)
    if (left := (job.run_at - now).total_seconds()) > 0:
        return _delayed(job, left, now)
    if not takers:
        return await _strangers(store, job.queue, now) or (
            f"No worker takes queue {job.queue!r}: start one that does.{_others(job.queue, workers)}"
        )
    before = counts.ahead
    if (limit := await limited(store, counts, takers)) is not None:
        return f"{limit.what} {counted(before, 'due job')} stand before it." if before else limit.what
    if full := await lane_full(store, job, takers):
        return full
    if not any(worker.health.consuming for worker in takers):
        text = "; ".join(
            f"{worker.id} is {worker.health.status}: {worker.health.why}" for worker in takers[:3]
        )
        return f"No worker of queue {job.queue!r} takes anything now ({text}). See their logs; what they run: {_run_by(job)}"
    if before:
        return f"It waits behind {counted(before, 'other due job')} of queue {job.queue!r}."
    if left < -PROMPT and any(worker.running < worker.concurrency for worker in takers):
        return (
            f"It has been due for {lasting(-left)}, the next of queue {job.queue!r}, and workers have room, yet nobody takes it: "
            f"somebody else may hold a lock on it. Ask: unstuck doctor"
        )
    return f"It is the next of queue {job.queue!r} and waits for a free worker."


async def _too_late(store: Store, expired: datetime, now: datetime) -> str:
    text = f"It expired {ago(expired, now)}, so that no worker starts it"
    if _recovering(alive((await store.fleet()).workers, now)):
        return f"{text}; the next reaper will fail it."
    return f"{text}, and nobody fails it: no worker that is alive recovers. Now: unstuck reap --once"


async def _children(store: Store, job: Job) -> str:
    """What a parent waits for, and which of its children will not end by themselves."""
    if not isinstance(store, Parental) or (awaited := await store.children(job.ref)) is None:
        return ""
    failed = []
    for ref in awaited.some:
        found = (await store.find(Filter(queue=ref.queue, ids=(ref.id,), status=Status.FAILED), 1)).jobs
        failed += [one.ref for one in found]
    names = ", ".join(f"{ref.id} of queue {ref.queue!r}" for ref in awaited.some)
    more = ", …" if awaited.many > len(awaited.some) else ""
    text = f"It waits until {counted(awaited.many, 'child job')} of it ended: {names}{more}."
    if not failed:
        return text
    again = "; ".join(command("retry", ref.id, queue=ref.queue) for ref in failed)
    return (
        f"{text} Of these {counted(len(failed), 'job')} failed, and it waits until that is run again: {again}"
    )


def _run_by(job: Job) -> str:
    return command("jobs", "--status", str(Status.PROCESSING), queue=job.queue)


def unknown(task: str, queue: str, takers: Sequence[WorkerInfo]) -> str:
    known = {name for worker in takers for name in worker.tasks}
    hint = near(task, known) or f"they know {', '.join(sorted(known)[:10])}"
    return (
        f"Task {task!r} is unknown to every worker of queue {queue!r}, which give it back each time: deploy its code to "
        f"them ({hint})."
    )


def _delayed(job: Job, left: float, now: datetime) -> str:
    due = f"It is due in {lasting(left)}, at {job.run_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.error and job.attempts:
        due += f" (attempt {job.attempts} failed: {job.error.code}: {job.error.message})"
    else:
        due += f", and was enqueued {ago(job.created_at, now)}"
    return f"{due}. Sooner: {command('edit', job.id, '--run-at', 'now', queue=job.queue)}"


def _since(job: Job, now: datetime) -> str:
    return "" if job.started_at is None else f" since {lasting((now - job.started_at).total_seconds())}"


async def _strangers(store: Store, queue: str, now: datetime) -> str:
    """Who is no worker of ours, but has jobs of the queue in hand."""
    running = (await store.find(Filter(queue=queue, status=Status.PROCESSING), 1)).jobs
    held = [job for job in running if job.heartbeat_at is None]
    if not held:
        return ""
    return (
        f"No worker of ours takes queue {queue!r}, but {holder(held[0].owner)}, which is none, has job {held[0].id} of it in hand"
        f"{_since(held[0], now)}: look at that process, or start a worker."
    )


def _others(queue: str, workers: Sequence[WorkerInfo]) -> str:
    """What is taken instead: perhaps a name is misspelt."""
    taken = sorted({name for worker in workers for name in worker.queues})
    if not taken:
        return " No worker is alive at all: one that was started has ended, or never reached this store. See its output."
    hint = ": is one of the names misspelt?" if near(queue, taken) else "."
    return f" Those alive take {', '.join(taken[:10])}{hint}"
