"""inline(): run an app's jobs inside a test, on a store of their own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unstuck.app import Unstuck
from unstuck.jobs import Jobs
from unstuck.worker import Worker


class Inline:
    """The jobs of the block, and a worker that runs when you say so."""

    def __init__(self, app: Unstuck, jobs: Jobs) -> None:
        self._app = app
        self.jobs = jobs

    async def run(self) -> None:
        """Run everything that is due, follow-up jobs included, and return when nothing is left."""
        await Worker(self._app, burst=True, recovery=0).run()


@asynccontextmanager
async def inline(app: Unstuck) -> AsyncIterator[Inline]:
    """Give the app an empty store for the length of a block; the real one is not touched.

    ``async with inline(app) as jobs: await send.enqueue(…); await jobs.run()``
    """
    with tempfile.TemporaryDirectory(prefix="unstuck-inline-") as folder:
        async with app.using(f"sqlite:///{folder}/jobs.db"):
            yield Inline(app, await app.jobs())
