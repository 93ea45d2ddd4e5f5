"""What limit keeps the due jobs of a queue waiting. The workers know the limits, the store what is used of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job, Status
from unstuck.protocol.limits import of_queue
from unstuck.protocol.operators import Counts, Filter, Finding
from unstuck.protocol.store import Store
from unstuck.text.phrases import command, counted, lasting

MOST = 1000  # running jobs that are looked at


async def limited(store: Store, counts: Counts, takers: Sequence[WorkerInfo]) -> Finding | None:
    """What holds up the whole queue, if a limit does."""
    queue, limits = counts.queue, _limits(counts.queue, takers)
    if (rate := limits.get("rate")) is not None:
        bucket = await store.take(name := rate["bucket"] or queue)
        shared = f" by bucket {name!r}" if name != queue else ""
        what = f"Queue {queue!r} is rate limited ({rate['count']} in {rate['per']:g} s){shared} for another"
        if bucket.closed_for > 0:
            why = "a handler was asked to wait so long"
            return Finding("warning", f"{what} {lasting(bucket.closed_for)}: {why}.", "it goes on by itself")
        if bucket.out >= rate["count"] and bucket.first_back > 0:
            long = f"{counted(counts.due, 'due job')} will take about {lasting(counts.due / rate['count'] * rate['per'])}"
            what = f"{what} {lasting(bucket.first_back)}: its {long}, however many workers there are."
            return Finding("warning", what, "raise its rate, or enqueue less")
    elif (wait := (await store.take(of_queue(queue))).closed_for) > 0:
        what = f"Queue {queue!r} is left alone by all workers for another {lasting(wait)}: a handler was asked to wait so long."
        return Finding("warning", what, "it goes on by itself")
    if (most := limits.get("limit")) is not None and counts.processing >= most:
        what = f"Queue {queue!r} runs at most {counted(most, 'job')} at a time, and so many are running."
        return Finding("ok", what)
    return None


async def lane_full(store: Store, job: Job, takers: Sequence[WorkerInfo]) -> str:
    """Whether a job's lane has as many running as it may, and which."""
    most = _limits(job.queue, takers).get("lane_limit")
    if job.lane is None or most is None:
        return ""
    running = (await store.find(Filter(queue=job.queue, status=Status.PROCESSING), MOST)).jobs
    before = [other for other in running if other.lane == job.lane]
    if len(before) < most:
        return ""
    stop = command("cancel", *(other.id for other in before[:5]), queue=job.queue)
    return f"Lane {job.lane!r} of queue {job.queue!r} has its {most} running. If they hang: {stop}"


def _limits(queue: str, takers: Sequence[WorkerInfo]) -> Mapping[str, Any]:
    return next((worker.limits[queue] for worker in takers if queue in worker.limits), {})
