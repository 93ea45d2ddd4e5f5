"""For how long a worker leases a job, how often it beats for it, and who may have it meanwhile."""

import asyncio
import time
from datetime import datetime
from itertools import pairwise
from typing import Any, cast

import pytest
from support.embeddings import embedding
from support.waiting import until_async
from support.work import at_work

from unstuck import Reaper, Status, Unstuck, Worker
from unstuck.protocol.leases import Share
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import workers_of
from unstuck.worker.held_lease import HeldLease

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-070")
@pytest.mark.parametrize(
    ("lease", "heartbeat", "least", "most"), [(40.0, 0.2, 0.15, 0.9), (5.0, 1.0, 0.95, 9.0)]
)
async def test_a_worker_leases_and_sends_heartbeats_as_its_queue_asks_for(
    app: Unstuck, lease: float, heartbeat: float, least: float, most: float
) -> None:
    @app.task(lease=lease, heartbeat=heartbeat)
    async def work() -> None:
        await asyncio.sleep(60)

    handle, beats = await work.enqueue(), list[datetime]()

    async def beaten() -> bool:
        job = await handle.job()
        if job.heartbeat_at is not None and job.heartbeat_at not in beats:
            assert job.lease_until is not None
            assert (job.lease_until - job.heartbeat_at).total_seconds() == pytest.approx(lease, abs=0.01)
            beats.append(job.heartbeat_at)
        return len(beats) == 4

    async with at_work(app):
        await until_async(beaten, 20, "a lease and three beats")
    between = [(after - before).total_seconds() for before, after in pairwise(beats[1:])]
    assert least <= min(between) <= most


@pytest.mark.accepts("EMB-071", "EMB-074", "EMB-076")
async def test_a_running_embedding_is_renewed_to_five_minutes_and_free_five_minutes_after_its_last_beat(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")  # its worker does not start without
    app.queue("embedding", **embedding())
    assert app.queues["embedding"].heartbeat == 120.0
    running = asyncio.Event()

    @app.task(queue="embedding")
    async def embed() -> None:
        running.set()
        await asyncio.sleep(60)

    handle = await embed.enqueue()
    async with at_work(app, recovery=0) as worker:
        await running.wait()
        for _ in range(4):
            await harness.age(120)
            await worker._heartbeat.confirm()
            job = await handle.job()
            assert job.lease_until is not None
            assert (job.status, job.owner) == (Status.PROCESSING, worker.id)
            assert abs(job.lease_until.timestamp() - time.time() - 300) < 15
            assert await Worker(app).process_jobs(1) == 0  # which begins with a recovery
        await harness.age(280)
        assert await Reaper(harness.store).recover() == []
        await harness.age(25)
        [recovered] = await Reaper(harness.store).recover()
    assert recovered.lease.id == handle.id


@pytest.mark.accepts("EMB-146", "EMB-072")
async def test_a_lease_that_ran_out_is_taken_by_a_worker_at_work_without_an_operator(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task(queue="theirs")
    async def work() -> str:
        return "done"

    handle = await work.enqueue()
    await harness.store.lease({"theirs": Share(60.0, 1)}, 1, "crashed")
    async with at_work(app, recovery=0.5):
        await until_async(lambda: workers_of(harness.store), 10, "the worker to be there")
        assert await handle.status() is Status.PROCESSING
        await harness.age(61)
        assert await handle.result(10) == "done"
    assert (await handle.job()).attempts == 2


async def test_a_job_whose_lease_may_be_over_is_started_only_if_the_store_answers_that_it_is_still_ours(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    @app.task(lease=600.0, heartbeat=60.0)
    async def work(number: int) -> None:
        runs.append(number)

    mine, cancelled = await app.enqueue_many([work.call(1), work.call(2)])
    store = await app.store()

    class Slow:
        """Its answer to a lease call takes so long that one of the jobs is cancelled meanwhile."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def lease(self, *args: Any, **kwargs: Any) -> Any:
            jobs = await store.lease(*args, **kwargs)
            if jobs:
                await store.cancel([cancelled.ref])
            return jobs

    stores = app._stores[asyncio.get_running_loop()]
    monkeypatch.setitem(cast("dict[str, Any]", stores), app.url, Slow())
    monkeypatch.setattr(HeldLease, "trust", _run_out)
    async with at_work(app):
        await mine.result(20)

    assert runs == [1]
    assert (await cancelled.job()).cancelled


def _run_out(held: HeldLease, _sent: float, _seconds: float) -> None:
    held.trusted_until = time.monotonic() - 1.0
