"""inline(): run an app's jobs inside a test, on a store of their own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from unstuck.app import Unstuck
from unstuck.jobs import Jobs
from unstuck.model import Filter, Status
from unstuck.worker import Worker


class Inline:
    """The jobs of the block, and a worker that runs when you say so."""

    def __init__(self, app: Unstuck, jobs: Jobs) -> None:
        self._app = app
        self.jobs = jobs

    async def run(self, *, ahead: float = 0.0) -> None:
        """Run everything that is due, follow-up jobs included, and return when nothing is left.

        Retries and delayed jobs that come due within ``ahead`` seconds are run as well, without waiting for them.
        """
        while True:
            began = datetime.now(UTC)
            await Worker(self._app, burst=True).run()
            pending = (await self.jobs.find(Filter(status=Status.PENDING), limit=1000)).jobs
            later = [job for job in pending if job.run_at > began]  # what was due and is left is held back
            gap = min((max(job.run_at - datetime.now(UTC), timedelta()) for job in later), default=None)
            if gap is None or gap.total_seconds() > ahead:
                return
            ahead -= gap.total_seconds()
            for job in later:
                await self.jobs.edit([job.id], job.queue, run_at=job.run_at - gap)


@asynccontextmanager
async def inline(app: Unstuck) -> AsyncIterator[Inline]:
    """Give the app an empty store for the length of a block; the real one is not touched.

    ``async with inline(app) as jobs: await send.enqueue(…); await jobs.run()``
    """
    with tempfile.TemporaryDirectory(prefix="unstuck-inline-") as folder:
        async with app.using(f"sqlite:///{folder}/jobs.db"):
            yield Inline(app, await app.jobs())
