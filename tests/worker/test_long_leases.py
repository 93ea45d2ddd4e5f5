"""Queues with long leases, as one of embeddings is, and with days of retention that the environment must say."""

from datetime import datetime
from typing import Any

import pytest
from support.embeddings import DAYS, embedding
from support.refusal import refusal
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Policy, Reaper, Unstuck, current_job
from unstuck.operations.health import HEARD_EVERY, WORKER_SILENT
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import Beat, Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


async def test_a_program_that_only_enqueues_needs_no_retention(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, "14 days")
    app.queue("embedding", **embedding())
    task = app.task(name="embed", queue="embedding")(lambda: None)
    await task.enqueue()

    policy = app.queues["embedding"]
    assert (policy.retention, policy.retention_from) == (14.0, DAYS)
    assert (policy.heartbeat, policy.max_crashes, policy.lapse_backoff) == (120.0, 10, ())


@pytest.mark.parametrize("name", ["embed days", "1A", 5, None])
def test_a_retention_comes_from_something_that_can_be_a_variable(name: Any) -> None:
    assert refusal(lambda: Policy(retention_from=name)).startswith("retention_from is ")


async def lease_of(app: Unstuck, queue: str) -> float:
    """For how many seconds a worker leases a job of the queue."""
    seen: list[float] = []

    @app.task(name=f"look at {queue}".replace(" ", "_"), queue=queue)
    async def look() -> None:
        job = await (await app.jobs()).get(current_job().id)
        beat: datetime | None = job.heartbeat_at or job.started_at
        assert job.lease_until is not None
        assert beat is not None
        seen.append((job.lease_until - beat).total_seconds())

    await look.enqueue()
    await burst(app)
    return round(seen[0])


@pytest.mark.accepts("EMB-145")
async def test_an_embedding_is_leased_for_five_minutes_and_again_with_each_beat(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, "14")  # its worker does not start without
    app.queue("embedding", **embedding())
    assert await lease_of(app, "embedding") == 300

    policy = app.queues["embedding"]
    await app.task(name="embed", queue="embedding")(lambda: None).enqueue()
    [job] = await harness.store.lease({"embedding": Share(policy.lease, 1)}, 1, "w")
    for _ in range(4):
        await harness.age(policy.heartbeat)
        await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, policy.lease)])
        assert await Reaper(harness.store).recover() == []
    await harness.age(301)
    assert len(await Reaper(harness.store).recover()) == 1


async def test_a_worker_of_long_leases_sends_heartbeats_often_enough_to_count_as_alive(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * HEARD_EVERY < WORKER_SILENT < 120
    monkeypatch.setattr("unstuck.worker.worker.HEARD_EVERY", 0.05)
    app.task(name="embed", queue="embedding", lease=300.0, heartbeat=120.0)(lambda: None)
    heard: set[datetime | None] = set()

    async def often() -> bool:
        heard.update(worker.seen_at for worker in (await harness.store.fleet()).workers)
        return len(heard) > 2

    async with at_work(app):
        await until_async(often, 30, "three beats of a worker")
