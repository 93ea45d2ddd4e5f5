"""bring_forward(): retries that were to come by a clock that was put back since come after their own delay."""

from __future__ import annotations

from datetime import datetime, timedelta

from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.protocol.store import Store

AHEAD = timedelta(minutes=1)  # a failure from further ahead means that the clock was put back
PAGE = 1000
MOST = 20  # pages that are looked at; whatever waits behind them waits the step out


async def bring_forward(store: Store, now: datetime) -> int:
    """Pending jobs whose failure lies in the future wait from now as long as they were to wait after it; how many.

    Any number of processes may do it at once. What was enqueued for a time or with a delay is left alone: whether
    somebody wrote that time down, or the old clock made it, cannot be known.
    """
    moved, cursor = 0, None
    for _ in range(MOST):
        page = await store.find(Filter(status=Status.PENDING), PAGE, cursor)
        for job in page.jobs:
            times = [job.started_at, job.error.at if job.error else None]
            failed = max((moment for moment in times if moment is not None), default=now)
            if job.run_at >= failed > now + AHEAD:
                moved += await store.edit([job.ref], run_at=now + (job.run_at - failed))
        if (cursor := page.cursor) is None:
            break
    return moved
