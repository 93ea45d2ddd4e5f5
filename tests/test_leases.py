"""For how long a worker leases a job, how often it beats for it, and who may have it meanwhile."""

import asyncio
import time
from datetime import datetime
from itertools import pairwise

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import Reaper, Status, Unstuck, Worker
from unstuck.profiles import embedding
from unstuck.store import Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-070")
@pytest.mark.parametrize(
    ("lease", "heartbeat", "least", "most"), [(40.0, 0.2, 0.15, 0.9), (5.0, 1.0, 0.95, 9.0)]
)
async def test_a_worker_leases_and_beats_as_its_queue_says(
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
    app.queue("embedding", **embedding({}))
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
            await worker._pulse.confirm()
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
        await until_async(harness.store.workers, 10, "the worker to be there")
        assert await handle.status() is Status.PROCESSING
        await harness.age(61)
        assert await handle.result(10) == "done"
    assert (await handle.job()).attempts == 2
