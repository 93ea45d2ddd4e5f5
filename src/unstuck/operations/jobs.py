"""Jobs: the one door to a store for producers, operators and every interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self, TypeVar

from msgspec.structs import replace

from unstuck.config.checks import number, queue_name, shown, whole
from unstuck.config.job_options import Options
from unstuck.config.retry import Retry
from unstuck.operations.doctor import doctor
from unstuck.operations.explain import explain, latest
from unstuck.operations.health import DEGRADED, HealthStatus, alive, health_status
from unstuck.operations.new_job import RegisteredTask, job_by_name
from unstuck.operations.overview import Overview
from unstuck.operations.recovered import Recovered, recover_once
from unstuck.operations.schedule_changes import ScheduleChanges
from unstuck.operations.schedules import statuses
from unstuck.operations.stored_schedules import records
from unstuck.operations.verify import broken_rules
from unstuck.protocol.errors import ConfigError, UnknownJob
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import keyed_id
from unstuck.protocol.job import Enqueued, Job, Json, NewJob, Ref, Status
from unstuck.protocol.leases import GRACE
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Settled, released
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.stores import existing_store, open_store
from unstuck.text.durations import Seconds, in_seconds
from unstuck.text.phrases import near

AT_ONCE = 1000
MOST_COUNTED = 100_000
DAY = 86400.0
UNFINISHED = (Status.PENDING, Status.PROCESSING)
T = TypeVar("T")
_Step = Callable[[Filter, int], Awaitable[int]]


class Jobs(ScheduleChanges):
    """All that can be done with the jobs of a store. Interfaces parse, call this, and print.

    ``async with Jobs.open("sqlite:///jobs.db") as jobs:`` opens a store, ``await app.jobs()`` is that of an app and knows its
    ``tasks``, ``app.jobs_sync()`` has the same methods for code without an event loop.
    """

    def __init__(self, store: Store, tasks: Mapping[str, RegisteredTask] | None = None) -> None:
        self._store = store
        self._tasks = {} if tasks is None else tasks

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, create: bool = False, tasks: Mapping[str, RegisteredTask] | None = None
    ) -> AsyncIterator[Self]:
        """Open the store behind a URL for the length of a block.

        It must exist, and it is left as it is; with ``create`` it is made, or its schema is brought up to date.
        ``tasks`` are those of an app, ``app.tasks``, if they are to be known.
        """
        async with (open_store if create else existing_store)(url) as store:
            if create:
                await store.migrate()
            yield cls(store, tasks)

    async def migrate(self) -> None:
        """Bring the store's schema up to date. Safe to repeat, and from many processes at once."""
        await self._store.migrate()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs that were made already, such as ``task.call(…).job``, in one step."""
        return await self._store.enqueue(jobs)

    async def enqueue_task(
        self,
        task: str,
        arguments: Mapping[str, Json],
        *,
        queue: str | None = None,
        retry: Retry | int | None = None,
        key: str | None = None,
        again: bool = False,
        debounce: Seconds | None = None,
        throttle: Seconds | None = None,
        priority: int = 0,
        delay: Seconds = 0.0,
        run_at: datetime | None = None,
        lane: str | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Enqueued:
        """Add one job of a task by its name, with arguments as JSON says them.

        A task that the app has registered brings its queue, retries and timeout, and its arguments are checked. Any other
        task may be given a ``queue`` ("default" without one) and a ``retry``; where an app is known, it must be given the queue.
        """
        options = Options(
            key=key,
            again=again,
            debounce=None if debounce is None else in_seconds(debounce),
            throttle=None if throttle is None else in_seconds(throttle),
            priority=priority,
            delay=in_seconds(delay),
            run_at=run_at,
            lane=lane,
            expires=expires,
        )
        job = job_by_name(self._tasks, task, arguments, options, queue=queue, retry=retry)
        [enqueued] = await self._store.enqueue([job])
        return enqueued

    async def get(self, id: str, queue: str | None = None) -> Job:
        """The job with this id; the queue is needed only where two queues have the id."""
        if not isinstance(id, str):
            raise ConfigError(f"job id is {shown(id)}: it must be a text, such as handle.id")
        if not id.isprintable():
            raise UnknownJob(f"no job has the id {ascii(id)[:60]}: it is no printable text")
        found = (await self._store.find(Filter(ids=(id,), queue=queue), limit=2)).jobs
        if not found:
            raise UnknownJob(f"no job has the id {id!r}" + (f" in queue {queue!r}" if queue else ""))
        if len(found) > 1:
            raise UnknownJob(
                f"queues {found[0].queue!r} and {found[1].queue!r} both have a job {id!r}: say which queue"
            )
        return found[0]

    async def get_by_id_or_key(self, name: str, queue: str | None = None) -> Job:
        """People know the keys of their jobs, such as an order's number. An id is tried before a key.

        Of jobs that are spaced out by a key the newest is found.
        """
        try:
            return await self.get(name, queue)
        except UnknownJob:
            if not name.isprintable():
                raise
            queues = {of.queue for of in await self.counts()} if queue is None else {queue}
            ids = tuple(keyed_id(each, name) for each in queues)
            found = (await self.find(Filter(ids=ids, queue=queue), 2)).jobs if ids else []
            if len(found) > 1:
                both = (
                    f"queues {found[0].queue!r} and {found[1].queue!r} both have a job with the key {name!r}"
                )
                raise UnknownJob(f"{both}: say which queue") from None
            if not found and not (found := (await self.find(Filter(key=name, queue=queue), 1)).jobs):
                raise
            return found[0]

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        whole("limit", limit, 1, AT_ONCE)
        if which.queue is not None:
            queue_name(which.queue)
        return await self._store.find(which, limit, cursor)

    async def counts(self) -> list[Counts]:
        """Every queue in numbers."""
        return await self._store.count()

    async def now(self) -> datetime:
        """The store's time, by which leases, delays and schedules go."""
        return (await self._store.clock()).now

    async def overview(self, *, running: int = 50, dead: int = 10) -> Overview:
        """Queues, living workers, schedules and health at one moment, with so many running jobs and dead letters."""
        queues, fleet, now = await self.counts(), await self._store.fleet(), await self.now()
        living = alive(fleet.workers, now)
        return Overview(
            now=now,
            health=health_status(fleet.workers, queues, now, None),
            queues=queues,
            workers=living,
            schedules=statuses(fleet.slots, living, await records(self._store), now),
            running=(await self.find(Filter(status=Status.PROCESSING), running)).jobs if running else [],
            dead=(await self.find(Filter(dead=True), dead)).jobs if dead else [],
        )

    async def get_queue_status(self, queue: str | None = None) -> dict[str, int]:
        """How many jobs are in each state, in one queue or in all."""
        counts = [of for of in await self.counts() if queue in (None, of.queue)]
        return {str(status): sum(getattr(of, status) for of in counts) for status in Status}

    async def get_health_status(self, queue: str | None = None) -> HealthStatus:
        """HEALTHY, DEGRADED or CRITICAL, and why: of one queue and those who take it, or of all."""
        if queue is not None:
            queue_name(queue)
        found = health_status(await self.workers(), await self.counts(), await self.now(), queue)
        if why := await self.strange(queue):
            return replace(found, status=DEGRADED, why=why)
        return found

    async def strange(self, queue: str | None) -> str:
        """A sentence about a queue that neither a job nor a worker has ever used, perhaps misspelt; "" for any other."""
        if queue is None or (await self.find(Filter(queue=queue), 1)).jobs:
            return ""
        known = {of.queue for of in await self.counts()}
        known |= {name for worker in await self.workers() for name in worker.queues}
        if queue in known:
            return ""
        listed = (
            ", ".join(map(repr, sorted(known)[:10])) + (", …" if len(known) > 10 else "") or "none so far"
        )
        return f"queue {queue!r} is not known, nobody has used it yet ({near(queue, known) or f'there are {listed}'})"

    async def workers(self) -> list[WorkerInfo]:
        """Those that the store remembers, also if they left or fell silent, the one with the latest heartbeat first."""
        return (await self._store.fleet()).workers

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        """Events in order, of one job or of all, from the beginning or after the cursor of an event."""
        return await self._store.events(after, job, limit)

    async def history(self, job: Ref) -> list[Event]:
        """The last hundred events of a job, in order."""
        return await latest(self._store, job)

    async def cancel(self, ids: str | Sequence[str], queue: str | None = None) -> int:
        """Cancel the jobs with these ids, or this one, that are not finished; answers how many that were."""
        return await self._cancel([job.ref async for job in self._named(ids, queue)])

    async def cancel_matching(self, which: Filter) -> int:
        """Cancel all jobs that match now and are not finished, however many, in bounded steps."""
        # All are listed first: a cancelled job may leave the listing, and where pages are counted, the next one moves up.
        return await self._cancel([job.ref async for job in self._all(which) if job.status in UNFINISHED])

    async def held_by(self, owner: str) -> list[str]:
        """The ids of the jobs that a worker holds."""
        which = Filter(owner=owner, status=Status.PROCESSING)
        return [job.id async for job in self._all(which)]

    async def matching(self, which: Filter) -> Counter[str]:
        """How many jobs match, by the codes of their errors ("" without one), counted up to a hundred thousand."""
        found, counted = Counter[str](), 0
        async for job in self._all(which):
            found[job.error.code if job.error else ""] += 1
            counted += 1
            if counted == MOST_COUNTED:
                break
        return found

    async def retry(self, which: Filter) -> int:
        """Put finished jobs back into their queues, with fresh attempts."""
        return await self._in_batches(which, self._store.requeue)

    async def retry_failed_jobs(self, queue: str | None = None) -> int:
        """Put all dead letters back; what was cancelled stays so."""
        return await self.retry(Filter(queue=queue, dead=True))

    async def release_jobs(self, ids: str | Sequence[str], owner: str) -> int:
        """Hand back what ``owner`` has leased of these, unspent; jobs of others are left alone."""
        held = [released(job.lease) async for job in self._named(ids, None, owner=owner)]
        done = 0
        for some in _steps(held):
            done += (await self._store.settle(some)).count(Settled.APPLIED)
        return done

    async def cleanup_jobs(self, days: float = 14.0, queue: str | None = None) -> int:
        """Delete jobs that finished more than ``days`` days ago, completed and failed ones alike."""
        number("days", days, 0.0, 3660.0, "days")
        return await self._in_batches(Filter(queue=queue, older_than=days * DAY), self._store.delete)

    async def recover(self, *, grace: Seconds = GRACE) -> Recovered:
        """End the leases that ran out, here and now. A job held without a lease is given one after ``grace`` of silence."""
        return await recover_once(Reaper(self._store, grace=grace))

    async def recover_stale_jobs(self) -> int:
        """As ``recover``; answers how many leases that were."""
        return (await self.recover()).recovered

    def reaper(self, *, interval: Seconds, grace: Seconds = GRACE) -> Reaper:
        """A reaper of this store; ``run()`` it while the store is open."""
        return Reaper(self._store, interval=interval, grace=grace)

    async def checkup(self) -> list[Finding]:
        """What the store says of itself at little cost: schema, durability, damage."""
        return await self._store.checkup()

    async def doctor(self, *, seconds: float = 1.0) -> list[Finding]:
        """What is wrong with the store, its queues and workers, and what to do. Looks twice, so many seconds apart."""
        return await doctor(self._store, seconds=seconds)

    async def metrics(self) -> bytes:
        """The metrics of the store as Prometheus reads them; the client library must be installed."""
        from unstuck.operations.metrics import exposition

        return await exposition(self._store)

    async def verify(self) -> list[str]:
        """The rules that must always hold and do not, in words, by reading every job."""
        return await broken_rules(self._store)

    async def pause(self, queue: str, why: str = "paused by hand") -> None:
        """Let no worker take jobs of a queue; running jobs go on."""
        await self._store.pause(queue_name(queue), why)

    async def resume(self, queue: str) -> bool:
        """Let a queue run again after a pause or a halt; false if it was not paused."""
        return await self._store.pause(queue_name(queue), None)

    async def explain(self, id: str, queue: str | None = None) -> str:
        """Why a job is where it is and what can be done about it, in a sentence or two."""
        return await explain(self._store, await self.get(id, queue))

    async def edit(
        self,
        ids: str | Sequence[str],
        queue: str | None = None,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
    ) -> int:
        """Give jobs that wait another priority or another time; answers how many that were."""
        Options(priority=priority or 0, run_at=run_at)
        refs = [job.ref async for job in self._named(ids, queue)]
        return sum([await self._store.edit(some, priority=priority, run_at=run_at) for some in _steps(refs)])

    async def _named(
        self, ids: str | Sequence[str], queue: str | None, owner: str | None = None
    ) -> AsyncIterator[Job]:
        if isinstance(ids, str):  # also a sequence of texts, its characters
            ids = (ids,)
        for start in range(0, len(ids), AT_ONCE):
            batch = tuple(dict.fromkeys(ids[start : start + AT_ONCE]))
            status = None if owner is None else Status.PROCESSING
            async for job in self._all(Filter(ids=batch, queue=queue, owner=owner, status=status)):
                yield job

    async def _all(self, which: Filter) -> AsyncIterator[Job]:
        """Every job of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self._store.find(which, AT_ONCE, cursor)
            for job in page.jobs:
                yield job
            if (cursor := page.cursor) is None:
                return

    async def _cancel(self, refs: Sequence[Ref]) -> int:
        return sum([await self._store.cancel(some) for some in _steps(refs)])

    async def _in_batches(self, which: Filter, step: _Step) -> int:
        # Bounded steps, so that a million rows do not hold up everybody else.
        total = 0
        while (done := await step(which, AT_ONCE)) > 0:
            total += done
            if done < AT_ONCE:
                break
        return total


def _steps(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many of them at a time as one step of a store may change."""
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))
