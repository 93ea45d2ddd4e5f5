"""inline(): run an app's jobs inside a test, on a store of their own."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from unstuck.app.app import Unstuck
from unstuck.app.dependencies import Function
from unstuck.app.sync_jobs import SyncJobs
from unstuck.operations.jobs import Jobs
from unstuck.protocol.errors import UnstuckError
from unstuck.protocol.job import Job, Status
from unstuck.protocol.limits import of_queue
from unstuck.protocol.operators import Filter
from unstuck.testing.harnesses.sqlite import SQLiteHarness
from unstuck.text.durations import Seconds, in_seconds
from unstuck.worker.rate_limits import slack
from unstuck.worker.worker import Worker

ROUND = 0.1  # seconds of ``ahead`` that a round takes at least: a job that is never done has an end, too
_TIMES = {
    "job": ("run_at", "rank", "expires_at"),
    "token": ("free_at",),
    "bucket": ("closed_until",),
    "spacing": ("until",),
}


class Inline:
    """The jobs of the block, and a worker that runs when you say so."""

    def __init__(self, app: Unstuck, jobs: Jobs, harness: SQLiteHarness) -> None:
        self._app = app
        self._harness = harness
        self.jobs = jobs

    async def run(self, *, ahead: Seconds = 0.0) -> None:
        """Run everything that is due, follow-up jobs included, and return when nothing is left.

        Retries, delayed jobs and those that a rate or a refusal holds back are run as well if their time comes within
        ``ahead`` seconds, without waiting for it.
        """
        left = in_seconds(ahead)
        while True:
            began = datetime.now(UTC)
            await Worker(self._app, burst=True, wait_for_limits=False).run()
            pending = (await self.jobs.find(Filter(status=Status.PENDING), limit=1000)).jobs
            gap = min([*_delays(pending, began), *await self._tokens(pending, began)], default=None)
            if gap is None or gap.nominal > left:
                return
            left -= gap.nominal
            self._age(gap.real)

    async def _tokens(self, pending: list[Job], began: datetime) -> list[_Gap]:
        """When the buckets of jobs that were due and are left have tokens again."""
        held_back = {job.queue for job in pending if job.run_at <= began}
        found = []
        for queue, policy in self._app.queues.items():
            if queue in held_back:
                rate = policy.rate
                store = await self._app.store()
                bucket = await store.take(rate.bucket or queue if rate else of_queue(queue))
                if bucket.closed_for > 0:
                    found.append(_Gap(bucket.closed_for, bucket.closed_for))
                elif rate and bucket.out >= rate.count:
                    returns = bucket.first_back
                    found.append(_Gap(max(returns - slack(rate), ROUND), returns))
        return found

    def _age(self, seconds: float) -> None:
        by = math.ceil(seconds * 1000)
        for table, columns in _TIMES.items():
            which = " WHERE status = 'pending'" if table == "job" else ""
            change = ", ".join(f"{name} = {name} - {by}" for name in columns)
            self._harness.rows(f"UPDATE {table} SET {change}{which}")


class _Gap(NamedTuple):
    """Seconds until something can go on: as people count them, and as the store does."""

    nominal: float
    real: float


def _delays(pending: list[Job], began: datetime) -> list[_Gap]:
    """When jobs come due that were not when the worker began; what was due and is left is held back."""
    now = datetime.now(UTC)
    waits = [max((job.run_at - now).total_seconds(), 0.0) for job in pending if job.run_at > began]
    return [_Gap(max(wait, ROUND), wait) for wait in waits]


class SyncInline:
    """The same for tests without an event loop."""

    def __init__(self, inside: Inline, runner: asyncio.Runner, jobs: SyncJobs) -> None:
        self._inside = inside
        self._runner = runner
        self.jobs = jobs

    def run(self, *, ahead: Seconds = 0.0) -> None:
        """As :meth:`Inline.run`."""
        self._runner.run(self._inside.run(ahead=ahead))


class InlineBlock(AbstractAsyncContextManager[Inline], AbstractContextManager[SyncInline]):
    """What ``inline`` returns: enter it with ``async with`` or, where no event loop runs, with ``with``."""

    def __init__(self, app: Unstuck, dependencies: Mapping[Function, Function] | None) -> None:
        self._app = app
        self._dependencies = dependencies

    async def __aenter__(self) -> Inline:
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unstuck-inline-"))
            harness = SQLiteHarness(Path(folder))
            await stack.enter_async_context(
                self._app.using(harness.url, own_transactions=True, dependencies=self._dependencies)
            )
            block = Inline(self._app, await self._app.jobs(), harness)
            self._stack = stack.pop_all()
        return block

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def __enter__(self) -> SyncInline:
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises where there is none
            raise UnstuckError("an event loop runs here: write async with inline(app), and await jobs.run()")
        with ExitStack() as stack:
            self._runner = stack.enter_context(asyncio.Runner())
            block = SyncInline(self._runner.run(self.__aenter__()), self._runner, self._app.jobs_sync())
            stack.pop_all()
        return block

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self.__aexit__())


def inline(app: Unstuck, *, dependencies: Mapping[Function, Function] | None = None) -> InlineBlock:
    """Give the app an empty store for the length of a block; the real one is not touched.

    ``async with inline(app) as jobs: await send.enqueue(…); await jobs.run()``, or without an event loop
    ``with inline(app) as jobs: send.enqueue_sync(…); jobs.run()``. ``enqueue_in`` takes any connection there, and adds its
    jobs at once, in a transaction of its own. ``dependencies={session: fake}`` has the fake called in the place of
    ``session`` for all that ``Depends(session)`` fills.
    """
    return InlineBlock(app, dependencies)
