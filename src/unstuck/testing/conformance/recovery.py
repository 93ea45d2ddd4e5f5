"""Recovery as the reaper does it: reclaim, the retry rule, settle."""

from __future__ import annotations

from datetime import timedelta

import pytest

from unstuck.operations.jobs import Jobs
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.outcome import Outcome, Settled, completed, retried
from unstuck.protocol.retry import crash_fate, fate
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import counts, enqueued, leased, look, one_leased, states, trouble
from unstuck.testing.harnesses.harness import Harness

TICK = timedelta(milliseconds=2)  # of a store's clock, for those that round


async def recover(store: Store) -> list[Outcome]:
    return await Reaper(store).recover()


@pytest.mark.accepts("REC-002", "REC-004", "REAP-011")
async def test_an_expired_job_is_pending_again_with_its_lock_cleared(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([retried(job.lease, trouble(), 0.0)])
    [job] = await leased(harness.store)
    await harness.age(61)

    await recover(harness.store)

    stored = await look(harness.store, job.ref)
    assert (job.attempts, stored.attempts) == (2, 2)
    assert (stored.status, stored.owner, stored.lease_until, stored.heartbeat_at) == (
        Status.PENDING,
        None,
        None,
        None,
    )


@pytest.mark.accepts("REC-003", "REC-044", "EMB-072")
async def test_a_recovered_job_can_be_leased_and_done_by_any_worker(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="crashed")
    await harness.age(61)
    await recover(harness.store)

    [again] = await leased(await harness.another(), owner="healthy")

    assert again.ref == job.ref
    assert await harness.store.settle([completed(again.lease)]) == [Settled.APPLIED]


@pytest.mark.accepts("REC-049", "REAP-034")
async def test_a_live_lease_is_left_alone(harness: Harness) -> None:
    """A long one until its end, and from then on as long as somebody beats for it."""
    job = await one_leased(harness.store, seconds=600.0)
    for _ in range(3):
        await harness.age(500)
        before = await look(harness.store, job.ref)

        assert await recover(harness.store) == []
        assert await leased(await harness.another(), owner="other") == []
        assert await look(harness.store, job.ref) == before
        assert (before.status, before.lease) == (Status.PROCESSING, job.lease)
        await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 600.0)])
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


@pytest.mark.accepts("REAP-042")
async def test_a_job_that_beats_outlives_its_lease_and_is_recovered_when_it_stops(harness: Harness) -> None:
    job = await one_leased(harness.store)
    for _ in range(4):
        await harness.age(50)
        assert await recover(harness.store) == []
        await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)])
    await harness.age(61)

    assert len(await recover(harness.store)) == 1
    assert (await look(harness.store, job.ref)).status is Status.PENDING


@pytest.mark.accepts("REAP-010", "REAP-012", "REAP-051")
async def test_below_the_maximum_it_is_requeued_with_the_lapse_backoff(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=2, lapse_backoff=(30.0, 120.0, 600.0))
    await harness.age(61)

    await recover(harness.store)

    assert (await look(harness.store, job.ref)).status is Status.PENDING
    assert await leased(harness.store) == []
    await harness.age(20)
    assert await leased(harness.store) == []
    await harness.age(17)
    assert [again.ref for again in await leased(harness.store)] == [job.ref]


@pytest.mark.accepts("REAP-050")
async def test_the_lapse_backoff_grows_with_the_attempts(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=5, lapse_backoff=(30.0, 120.0, 600.0))
    for step in (30.0, 120.0, 600.0):
        await harness.age(61)
        before = (await harness.store.clock()).now
        await recover(harness.store)
        after = (await harness.store.clock()).now
        due = (await look(harness.store, job.ref)).run_at
        assert due >= before + timedelta(seconds=step) - TICK
        assert due <= after + timedelta(seconds=1.2 * step) + TICK
        await harness.age(800)
        assert len(await leased(harness.store)) == 1


@pytest.mark.accepts("REAP-020", "REAP-021", "REAP-022")
async def test_at_the_maximum_it_fails_with_timeout_and_lease_expired(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=1)
    await harness.age(61)

    await recover(harness.store)

    stored = await look(harness.store, job.ref)
    assert stored.status is Status.FAILED
    assert stored.error is not None
    assert (stored.error.code, stored.error.reason) == ("timeout", "lease_expired")
    assert (stored.owner, stored.lease_until, stored.heartbeat_at) == (None, None, None)


@pytest.mark.accepts("REAP-025")
async def test_the_failed_record_names_its_holder_and_when_that_was_last_seen(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="worker-host-123", max_attempts=1)
    await harness.age(61)
    held = await look(harness.store, job.ref)

    await recover(harness.store)

    error = (await look(harness.store, job.ref)).error
    assert error is not None
    assert error.worker == "worker-host-123"
    assert held.heartbeat_at is not None
    assert error.details["heartbeat_at"] == held.heartbeat_at.isoformat()
    assert error.attempt == 1


@pytest.mark.accepts("REAP-013", "REAP-023", "REAP-061")
async def test_what_the_reaper_did_is_reported_by_an_event(harness: Harness) -> None:
    requeued = await one_leased(harness.store, max_attempts=2)
    failing = await one_leased(harness.store, max_attempts=1)
    await harness.age(61)
    await recover(harness.store)

    for job, type_ in ((requeued, "reaper:requeued"), (failing, "reaper:failed(timeout)")):
        [event] = [event for event in await harness.store.events(job=job.ref) if event.type == type_]
        assert set(event.data) == {"type", "table", "details"}
        assert event.data["type"] == type_
        assert event.data["table"]
        assert event.data["details"]["owner"] == "w"


@pytest.mark.accepts("REAP-060")
async def test_each_lease_that_is_ended_has_one_event_of_its_own(harness: Harness) -> None:
    requeued = await enqueued(harness.store, 3, max_attempts=2)
    failing = await enqueued(harness.store, 3, max_attempts=1)
    await leased(harness.store, 6)
    await harness.age(61)
    await recover(harness.store)

    for refs, type_ in ((requeued, "reaper:requeued"), (failing, "reaper:failed(timeout)")):
        for ref in refs:
            types = [event.type for event in await harness.store.events(job=ref)]
            assert [one for one in types if one.startswith("reaper:")] == [type_]


@pytest.mark.accepts("REAP-014", "REAP-024")
async def test_the_counters_of_the_reaper_live_in_the_store(harness: Harness) -> None:
    await enqueued(harness.store, 2, max_attempts=2)
    await enqueued(harness.store, 1, max_attempts=1)
    await leased(harness.store, 3)
    await harness.age(61)
    await recover(harness.store)

    totals = (await counts(await harness.another())).totals
    assert (totals["reaper.requeues"], totals["reaper.failures"]) == (2, 1)


async def test_what_was_taken_back_from_a_holder_seen_to_die_is_counted_apart(harness: Harness) -> None:
    await enqueued(harness.store, 1, max_attempts=2)
    await enqueued(harness.store, 1, max_attempts=1)
    jobs = await leased(harness.store, 2)

    await harness.store.settle([crash_fate(job, trouble(), seen=True) for job in jobs])

    totals = (await counts(await harness.another())).totals
    assert (totals["crash.requeues"], totals["crashed"]) == (1, 2)
    assert "reaper.requeues" not in totals


@pytest.mark.accepts("REC-077")
async def test_more_jobs_than_a_batch_are_recovered_in_one_go(harness: Harness) -> None:
    await enqueued(harness.store, 450)
    await leased(harness.store, 450)
    await harness.age(61)

    assert await Jobs(harness.store).recover_stale_jobs() == 450
    assert await states(harness.store) == {"pending": 450}


@pytest.mark.accepts("REC-064")
async def test_a_recovered_job_is_leased_like_any_other(harness: Harness) -> None:
    """Recovery brings no second kind of lease: the same attempt, fence, end and beats as the first time."""
    lost = await one_leased(harness.store, max_attempts=5)
    await harness.age(61)
    await recover(harness.store)

    [job] = await leased(harness.store)

    assert (job.id, job.attempts, job.owner) == (lost.id, lost.attempts + 1, lost.owner)
    assert job.fence > lost.fence
    assert job.lease_until
    assert job.started_at
    assert lost.lease_until
    assert lost.started_at
    assert job.lease_until - job.started_at == lost.lease_until - lost.started_at
    beats = [Beat(lost.lease, 60.0), Beat(job.lease, 60.0)]
    answer = await harness.store.heartbeat(WorkerInfo(id="w"), beats)
    assert answer.verdicts == {lost.lease: Verdict.LOST, job.lease: Verdict.HELD}
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


@pytest.mark.accepts("REC-066")
async def test_a_recovered_job_keeps_its_priority_and_its_place_in_line(harness: Harness) -> None:
    refs = await enqueued(harness.store, 2)
    [urgent] = await enqueued(harness.store, priority=5)
    assert [job.ref for job in await leased(harness.store, 2)] == [urgent, refs[0]]
    await harness.age(61)

    await recover(harness.store)

    assert [job.ref for job in await leased(harness.store, 3)] == [urgent, *refs]


@pytest.mark.accepts("EMB-020", "REC-040", "REC-083")
async def test_one_job_through_everything_that_can_happen_to_it(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs(harness.store)
    [ref] = await enqueued(harness.store, max_attempts=2)
    await leased(harness.store)
    await harness.age(61)
    assert await jobs.recover_stale_jobs() == 1
    [record] = [vars(line) for line in caplog.records if line.name == "unstuck.reaper"]
    assert (record["recovered"], record["jobIds"]) == (1, [ref.id])
    assert await jobs.get_queue_status() == {"pending": 1, "processing": 0, "completed": 0, "failed": 0}

    [job] = await leased(harness.store)
    await harness.store.settle([fate(job, trouble())])
    assert await jobs.get_queue_status() == {"pending": 0, "processing": 0, "completed": 0, "failed": 1}

    assert await jobs.retry_failed_jobs() == 1
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    assert (await look(harness.store, ref)).attempts == 1

    await harness.age(15 * 86400)
    assert await jobs.cleanup_jobs(days=14) == 1
    assert await states(harness.store) == {}
