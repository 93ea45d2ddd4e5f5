"""heartbeat: renews what is held, and reports what is not."""

from __future__ import annotations

import pytest

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Lease
from unstuck.protocol.leases import Beat, Recovery, Verdict
from unstuck.protocol.outcome import completed, released
from unstuck.testing.conformance.given import enqueued, leased, look, now, one_leased
from unstuck.testing.harnesses.harness import Harness

ME = WorkerInfo(
    id="w",
    host="here",
    pid=42,
    queues=("q",),
    tasks=("task",),
    schedules=("daily",),
    fires_stored=True,
    concurrency=3,
)


@pytest.mark.accepts("EMB-074", "EMB-075", "REAP-041")
async def test_a_beat_extends_the_lease_from_now_on_and_keeps_the_owner(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=300.0)
    await harness.age(120)

    answer = await harness.store.heartbeat(ME, [Beat(job.lease, 300.0)])

    stored = await look(harness.store, job.ref)
    assert answer.verdicts == {job.lease: Verdict.HELD}
    assert stored.owner == "w"
    assert stored.lease_until is not None
    assert stored.heartbeat_at is not None
    assert (stored.lease_until - stored.heartbeat_at).total_seconds() == pytest.approx(300.0, abs=0.01)
    assert abs((stored.lease_until - now()).total_seconds() - 300.0) < 30.0


@pytest.mark.accepts("EMB-074", "EMB-075", "EMB-076")
async def test_a_job_that_is_beaten_for_stays_with_its_worker_beyond_its_first_lease(
    harness: Harness,
) -> None:
    job = await one_leased(harness.store, seconds=300.0)
    other = await harness.another()
    for _ in range(4):
        await harness.age(120)
        await harness.store.heartbeat(ME, [Beat(job.lease, 300.0)])
        stored = await look(harness.store, job.ref)
        assert (stored.owner, stored.lease) == ("w", job.lease)
        assert stored.lease_until is not None
        assert abs((stored.lease_until - now()).total_seconds() - 300.0) < 30.0
        assert await leased(other, owner="other") == []
        assert (await other.reclaim(Recovery("reaper", 30.0, 10))).jobs == []

    await harness.age(270)
    assert await leased(other, owner="other") == []
    assert (await other.reclaim(Recovery("reaper", 30.0, 10))).jobs == []


async def test_a_beat_may_shorten_the_lease_for_the_next_stage(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=600.0)

    await harness.store.heartbeat(ME, [Beat(job.lease, 10.0, stage="clip")])

    stored = await look(harness.store, job.ref)
    assert stored.stage == "clip"
    assert stored.lease_until is not None
    assert (stored.lease_until - now()).total_seconds() < 30.0


@pytest.mark.accepts("MQ-040", "MQ-042")
async def test_progress_and_stage_are_saved_and_silence_keeps_them(harness: Harness) -> None:
    job = await one_leased(harness.store)

    await harness.store.heartbeat(ME, [Beat(job.lease, 60.0, progress={"done": 3, "of": 10}, stage="asr")])
    await harness.store.heartbeat(ME, [Beat(job.lease, 60.0)])

    stored = await look(harness.store, job.ref)
    assert (stored.progress, stored.stage) == ({"done": 3, "of": 10}, "asr")


@pytest.mark.accepts("REC-073")
async def test_a_released_job_is_never_extended(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([released(job.lease)])

    answer = await harness.store.heartbeat(ME, [Beat(job.lease, 60.0)])

    assert answer.verdicts == {job.lease: Verdict.LOST}
    assert (await look(harness.store, job.ref)).lease_until is None


async def test_a_beat_of_an_older_lease_leaves_its_successors_alone(harness: Harness) -> None:
    old = await one_leased(harness.store, owner="w", seconds=300.0)
    await harness.store.settle([released(old.lease)])
    [new] = await leased(harness.store, owner="w", seconds=300.0)  # the same name: names guard nothing
    await harness.age(100)

    answer = await harness.store.heartbeat(ME, [Beat(old.lease, 5000.0, progress="stale")])

    stored = await look(harness.store, new.ref)
    assert answer.verdicts == {old.lease: Verdict.LOST}
    assert stored.progress is None
    assert stored.lease_until is not None
    assert (stored.lease_until - now()).total_seconds() < 260.0


async def test_a_late_beat_saves_a_job_that_nobody_took(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=10.0)
    await harness.age(1000)

    answer = await harness.store.heartbeat(ME, [Beat(job.lease, 10.0)])

    assert answer.verdicts == {job.lease: Verdict.HELD}
    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 10))).jobs == []


async def test_every_lease_gets_its_own_verdict(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    held, done, dropped = await leased(harness.store, 3)
    await harness.store.settle([completed(done.lease)])
    await harness.store.cancel([dropped.ref])
    made_up = Lease("q", "nobody", 7)

    leases = [held.lease, done.lease, dropped.lease, made_up]
    answer = await harness.store.heartbeat(ME, [Beat(lease, 60.0) for lease in leases])

    assert [answer.verdicts[lease] for lease in leases] == [
        Verdict.HELD,
        Verdict.LOST,
        Verdict.CANCELLED,
        Verdict.LOST,
    ]


async def test_leases_that_the_caller_forgot_are_named(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    known, forgotten = await leased(harness.store, 2)
    await enqueued(harness.store)
    await leased(harness.store, owner="other")

    answer = await harness.store.heartbeat(ME, [Beat(known.lease, 60.0)])

    assert answer.strangers == [forgotten.lease]


async def test_beats_are_idempotent(harness: Harness) -> None:
    job = await one_leased(harness.store)

    first = await harness.store.heartbeat(ME, [Beat(job.lease, 60.0)])
    second = await harness.store.heartbeat(ME, [Beat(job.lease, 60.0)])

    assert first.verdicts == second.verdicts == {job.lease: Verdict.HELD}


async def test_a_beat_records_the_worker(harness: Harness) -> None:
    await harness.store.heartbeat(ME, [])
    await harness.age(100)
    await harness.store.heartbeat(ME, [])

    [worker] = (await harness.store.fleet()).workers
    assert (worker.id, worker.host, worker.pid) == ("w", "here", 42)
    assert (worker.queues, worker.tasks) == (("q",), ("task",))
    assert (worker.schedules, worker.fires_stored) == (("daily",), True)
    assert worker.started_at is not None
    assert worker.seen_at is not None
    assert (worker.seen_at - worker.started_at).total_seconds() == pytest.approx(100.0, abs=30.0)


async def test_the_worker_seen_last_is_named_first(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        await harness.store.heartbeat(WorkerInfo(id=name), [])
        await harness.age(1)

    assert [worker.id for worker in (await harness.store.fleet()).workers] == ["c", "a", "b"]


async def test_a_worker_that_was_silent_for_long_is_forgotten(harness: Harness) -> None:
    await harness.store.heartbeat(WorkerInfo(id="gone"), [])
    await harness.age(100_000)
    await harness.store.heartbeat(ME, [])

    assert [worker.id for worker in (await harness.store.fleet()).workers] == ["w"]
