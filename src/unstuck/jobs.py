"""Jobs: all that an interface can ask, said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from unstuck.errors import ConfigError, UnknownJob
from unstuck.explain import explain, latest
from unstuck.firing import Firing, firings
from unstuck.health import DEGRADED, HealthStatus, alive, health_status
from unstuck.model import Event, Filter, Job, NewJob, Ref, Settled, Status, Worker, released
from unstuck.options import Options
from unstuck.policy import number, queue_name, shown, whole
from unstuck.reaper import Reaper
from unstuck.store import Counts, Enqueued, Page, Store
from unstuck.wording import near

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
        if not isinstance(id, str):
            raise ConfigError(f"job id is {shown(id)}: it must be a text, such as handle.id")
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
        found = health_status(await self.store.workers(), await self.store.count(), now, queue)
        if told := await self.strange(queue):
            return replace(found, status=DEGRADED, why=told)
        return found

    async def strange(self, queue: str | None) -> str:
        """What is to be said of a queue that neither a job nor a worker has ever used; nothing of any other."""
        if queue is None or (await self.find(Filter(queue=queue), 1)).jobs:
            return ""
        known = {of.queue for of in await self.store.count()}
        known |= {name for worker in await self.store.workers() for name in worker.queues}
        if queue in known:
            return ""
        listed = (
            ", ".join(map(repr, sorted(known)[:10])) + (", …" if len(known) > 10 else "") or "none so far"
        )
        return f"queue {queue!r} is not known, nobody has used it yet ({near(queue, known) or f'there are {listed}'})"

    async def workers(self) -> list[Worker]:
        return await self.store.workers()

    async def schedules(self) -> list[Firing]:
        """Every schedule that ever fired or that a living worker declares, by name, and who fires it."""
        now = (await self.store.clock()).now
        return firings(await self.store.slots(), alive(await self.store.workers(), now))

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await self.store.events(after, job, limit)

    async def history(self, job: Ref) -> list[Event]:
        """The last hundred events of a job, in order."""
        return await latest(self.store, job)

    async def cancel(self, ids: str | Sequence[str], queue: str | None = None) -> int:
        """Cancel the jobs with these ids, or this one, that are not finished; answers how many that were."""
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

    async def matching(self, which: Filter) -> Counter[str]:
        """How many jobs match, by the codes of their errors ("" without one), counted up to a hundred thousand."""
        found, cursor = Counter[str](), None
        while found.total() < MOST_COUNTED:
            page = await self.store.find(which, AT_ONCE, cursor)
            found.update(job.error.code if job.error else "" for job in page.jobs)
            if (cursor := page.cursor) is None:
                break
        return found

    async def retry(self, which: Filter) -> int:
        """Put finished jobs back into their queues, with fresh attempts."""
        return await self._in_batches(which, self.store.requeue)

    async def retry_failed_jobs(self, queue: str | None = None) -> int:
        """Put all dead letters back; what was cancelled stays so."""
        return await self.retry(Filter(queue=queue, dead=True))

    async def release_jobs(self, ids: str | Sequence[str], owner: str) -> int:
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
        """Why a job is where it is and what can be done about it, in a sentence or two."""
        return await explain(self.store, await self.get(id, queue))

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
        return await self.store.edit(refs, priority=priority, run_at=run_at)

    async def _named(
        self, ids: str | Sequence[str], queue: str | None, owner: str | None = None
    ) -> AsyncIterator[Job]:
        if isinstance(ids, str):  # also a sequence of texts, its characters
            ids = (ids,)
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
