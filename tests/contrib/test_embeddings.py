"""The profile of a queue of embeddings."""

from datetime import datetime
from typing import Any

import pytest
from support.refusal import refusal
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Policy, Rate, Reaper, Unstuck, Worker, current_job
from unstuck.contrib.embeddings import embedding
from unstuck.operations.health import HEARD_EVERY, WORKER_SILENT
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import Beat, Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-151", "EMB-152")
def test_embeddings_are_limited_to_20_a_minute_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("EMBEDDING_RATE_LIMIT_TOKENS", "EMBEDDING_RATE_LIMIT_INTERVAL")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert embedding().get("rate") == Rate(20, per=60.0)
    monkeypatch.setenv(names[0], "100")
    assert embedding().get("rate") == Rate(100, per=60.0)
    monkeypatch.setenv(names[1], "1500")
    assert embedding().get("rate") == Rate(100, per=1.5)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("EMBEDDING_RATE_LIMIT_TOKENS", "0"), ("EMBEDDING_RATE_LIMIT_TOKENS", "many"),
        ("EMBEDDING_RATE_LIMIT_INTERVAL", "60s"), ("EMBEDDING_RATE_LIMIT_INTERVAL", "99"),
    ],
)  # fmt: skip
def test_a_rate_out_of_range_is_refused_by_name(variable: str, text: str) -> None:
    assert refusal(embedding, {variable: text}).startswith(f"{variable} is ")


async def test_whoever_only_enqueues_embeddings_needs_no_retention(app: Unstuck) -> None:
    app.queue("embedding", **embedding({"EMBED_JOB_RETENTION_DAYS": "14 days"}))
    task = app.task(name="embed", queue="embedding")(lambda: None)
    await task.enqueue()

    policy = app.queues["embedding"]
    assert (policy.retention, policy.retention_from) == (14.0, "EMBED_JOB_RETENTION_DAYS")
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
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")  # its worker does not start without
    app.queue("embedding", **embedding({}))
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


async def test_a_worker_of_long_leases_is_heard_of_often_enough_to_count_as_alive(
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


@pytest.mark.accepts("REC-071")
@pytest.mark.parametrize(
    ("text", "seconds"), [("", 60.0), ("60000", 60.0), ("10000", 10.0), ("300000", 300.0), ("0", 0.0)]
)
async def test_a_worker_of_embeddings_recovers_at_its_variables_interval_in_milliseconds(
    app: Unstuck, text: str, seconds: float
) -> None:
    app.queue("embedding", **embedding({"EMBED_JOB_RECOVERY_INTERVAL": text}))
    app.task(name="embed", queue="embedding")(lambda: None)
    app.task(name="other")(lambda: None)

    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("EMBED_JOB_RETENTION_DAYS", "14")  # its worker does not start without
        environ.setenv(
            "EMBED_JOB_RECOVERY_INTERVAL", "7000"
        )  # read when the queue was declared, not by workers
        assert Worker(app).recovery == seconds
        assert Worker(app, queues=["default"]).recovery == 60.0
        assert Worker(app, recovery=5).recovery == 5.0


@pytest.mark.parametrize("text", ["60s", "-5", "2.5", "nan", "86400001"])
def test_an_interval_that_is_no_number_of_milliseconds_is_refused(text: str) -> None:
    assert refusal(embedding, {"EMBED_JOB_RECOVERY_INTERVAL": text}) == (
        f"EMBED_JOB_RECOVERY_INTERVAL is {text if text[-1].isdigit() else repr(text)}: "
        "it must be a whole number from 0 to 86400000"
    )
