"""Jobs: all that an interface can ask, said once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from unstuck.errors import UnknownJob
from unstuck.explain import explain
from unstuck.health import HealthStatus, health_status
from unstuck.model import Event, Filter, Job, NewJob, Ref, Settled, Status, Worker, released
from unstuck.options import Options
from unstuck.policy import number, queue_name, whole
from unstuck.reaper import Reaper
from unstuck.store import Counts, Enqueued, Page, Store

AT_ONCE = 1000
MOST_COUNTED = 100_000
DAY = 86400.0
_Step = Callable[[Filter, int], Awaitable[int]]


class Jobs:
    """Producers and operators speak to a store through this; the interfaces only parse and print."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self.store.enqueue(jobs)

    async def get(self, id: str, queue: str | None = None) -> Job:
        """The job with this id; the queue is needed only where two queues have the id."""
        if not id.isprintable():
            raise UnknownJob(f"no job has the id {ascii(id)[:60]}: it is no printable text")
        found = (await self.store.find(Filter(ids=(id,), queue=queue), limit=2)).jobs
        if not found:
            raise UnknownJob(f"no job has the id {id!r}" + (f" in queue {queue!r}" if queue else ""))
        if len(found) > 1:
            raise UnknownJob(
                f"queues {found[0].queue!r} and {found[1].queue!r} both have a job {id!r}: say which queue"
            )
        return found[0]

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        whole("limit", limit, 1, AT_ONCE)
        if which.queue is not None:
            queue_name(which.queue)
        return await self.store.find(which, limit, cursor)

    async def counts(self) -> list[Counts]:
        return await self.store.count()

    async def get_queue_status(self, queue: str | None = None) -> dict[str, int]:
        """How many jobs are in each state, in one queue or in all."""
        counts = [of for of in await self.store.count() if queue in (None, of.queue)]
        return {str(status): sum(getattr(of, status) for of in counts) for status in Status}

    async def get_health_status(self, queue: str | None = None) -> HealthStatus:
        """HEALTHY, DEGRADED or CRITICAL, and why: of one queue and those who take it, or of all."""
        if queue is not None:
            queue_name(queue)
        now = (await self.store.clock()).now
        return health_status(await self.store.workers(), await self.store.count(), now, queue)

    async def workers(self) -> list[Worker]:
        return await self.store.workers()

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await self.store.events(after, job, limit)

    async def cancel(self, ids: Sequence[str], queue: str | None = None) -> int:
        """Cancel jobs that are not finished; answers how many that were."""
        refs = [job.ref async for job in self._named(ids, queue)]
        return await self.store.cancel(refs) if refs else 0

    async def cancel_matching(self, which: Filter) -> int:
        """Cancel all jobs that match and are not finished, in bounded steps."""
        total = 0
        while found := (await self.store.find(which, AT_ONCE)).jobs:
            if not (done := await self.store.cancel([job.ref for job in found])):
                break
            total += done
        return total

    async def held_by(self, owner: str) -> list[str]:
        """The ids of the jobs that a worker holds."""
        which = Filter(owner=owner, status=Status.PROCESSING)
        return [job.id for job in (await self.store.find(which, AT_ONCE)).jobs]

    async def matching(self, which: Filter) -> int:
        """How many jobs match, counted up to a hundred thousand."""
        total, cursor = 0, None
        while total < MOST_COUNTED:
            page = await self.store.find(which, AT_ONCE, cursor)
            total += len(page.jobs)
            if (cursor := page.cursor) is None:
                break
        return total

    async def retry(self, which: Filter) -> int:
        """Put finished jobs back into their queues, with fresh attempts."""
        return await self._in_batches(which, self.store.requeue)

    async def retry_failed_jobs(self, queue: str | None = None) -> int:
        """Put all dead letters back; what was cancelled stays so."""
        return await self.retry(Filter(queue=queue, dead=True))

    async def release_jobs(self, ids: Sequence[str], owner: str) -> int:
        """Hand back what ``owner`` has leased of these, unspent; jobs of others are left alone."""
        held = [job async for job in self._named(ids, None, owner=owner)]
        if not held:
            return 0
        answers = await self.store.settle([released(job.lease) for job in held])
        return answers.count(Settled.APPLIED)

    async def cleanup_jobs(self, days: float = 14.0, queue: str | None = None) -> int:
        """Delete jobs that finished more than ``days`` days ago, completed and failed ones alike."""
        number("days", days, 0.0, 3660.0, "days")
        return await self._in_batches(Filter(queue=queue, older_than=days * DAY), self.store.delete)

    async def recover_stale_jobs(self) -> int:
        """End the leases that ran out, here and now; answers how many."""
        return len(await Reaper(self.store).recover())

    async def pause(self, queue: str, why: str = "paused by hand") -> None:
        await self.store.pause(queue_name(queue), why)

    async def resume(self, queue: str) -> bool:
        return await self.store.resume(queue_name(queue))

    async def explain(self, id: str, queue: str | None = None) -> str:
        """Why a job is not running, in one sentence."""
        return await explain(self.store, await self.get(id, queue))

    async def edit(
        self,
        ids: Sequence[str],
        queue: str | None = None,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
    ) -> int:
        """Give jobs that wait another priority or another time; answers how many that were."""
        Options(priority=priority or 0, run_at=run_at)
        refs = [job.ref async for job in self._named(ids, queue)]
        return await self.store.edit(refs, priority=priority, run_at=run_at)

    async def _named(
        self, ids: Sequence[str], queue: str | None, owner: str | None = None
    ) -> AsyncIterator[Job]:
        for start in range(0, len(ids), AT_ONCE):
            batch = tuple(dict.fromkeys(ids[start : start + AT_ONCE]))
            cursor: str | None = None
            while True:
                status = None if owner is None else Status.PROCESSING
                page = await self.store.find(
                    Filter(ids=batch, queue=queue, owner=owner, status=status), AT_ONCE, cursor
                )
                for job in page.jobs:
                    yield job
                if (cursor := page.cursor) is None:
                    break

    async def _in_batches(self, which: Filter, step: _Step) -> int:
        # Bounded steps, so that a million rows do not hold up everybody else.
        total = 0
        while (done := await step(which, AT_ONCE)) > 0:
            total += done
            if done < AT_ONCE:
                break
        return total
