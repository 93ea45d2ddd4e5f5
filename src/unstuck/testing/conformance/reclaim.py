"""reclaim: leases that ran out are taken over, live ones never."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from unstuck.protocol.availability import Blind
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Beat, Reclaimed, Recovery, Verdict
from unstuck.protocol.outcome import Settled, completed, retried
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, trouble
from unstuck.testing.harnesses.harness import Harness


async def reclaim(harness: Harness, limit: int = 100, **how: object) -> Reclaimed:
    return await harness.store.reclaim(Recovery("reaper", 30.0, limit, **how))  # type: ignore[arg-type]


@pytest.mark.accepts("EMB-071", "EMB-078")
async def test_a_lease_of_five_minutes_is_taken_over_after_five_minutes_and_not_before(
    harness: Harness,
) -> None:
    job = await one_leased(harness.store, seconds=300.0)

    await harness.age(290)
    assert (await reclaim(harness)).jobs == []
    assert await leased(harness.store, owner="another") == []
    assert (await look(harness.store, job.ref)).lease == job.lease
    await harness.age(11)
    assert [taken.ref for taken in (await reclaim(harness)).jobs] == [job.ref]


async def test_taking_over_raises_the_fence_and_leaves_the_counters(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.age(61)

    [taken] = (await reclaim(harness)).jobs

    stored = await look(harness.store, job.ref)
    assert taken.fence == stored.fence > job.fence
    assert (stored.attempts, stored.crashes) == (1, 0)
    assert (stored.status, stored.owner) == (Status.PROCESSING, "reaper")


async def test_the_job_is_shown_as_it_was(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="silent")
    await harness.store.heartbeat(WorkerInfo(id="silent"), [Beat(job.lease, 60.0, progress=0.5, stage="asr")])
    await harness.age(61)
    before = await look(harness.store, job.ref)

    [taken] = (await reclaim(harness)).jobs

    assert (taken.owner, taken.stage, taken.progress) == ("silent", "asr", 0.5)
    assert (taken.lease_until, taken.heartbeat_at) == (before.lease_until, before.heartbeat_at)


@pytest.mark.accepts("REC-074")
async def test_heartbeat_first_and_the_reaper_skips_reaper_first_and_the_heartbeat_finds_it_lost(
    harness: Harness,
) -> None:
    first = await one_leased(harness.store)
    await harness.age(61)
    await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(first.lease, 60.0)])
    assert (await reclaim(harness)).jobs == []

    await harness.age(61)
    [taken] = (await reclaim(harness)).jobs
    answer = await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(first.lease, 60.0)])
    assert answer.verdicts == {first.lease: Verdict.LOST}
    assert (await look(harness.store, first.ref)).lease == taken.lease


async def test_who_was_replaced_can_no_longer_settle(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.age(61)
    [taken] = (await reclaim(harness)).jobs

    assert await harness.store.settle([completed(job.lease)]) == [Settled.LOST]
    assert await harness.store.settle([retried(taken.lease, trouble(), 0.0, crashed=True)]) == [
        Settled.APPLIED
    ]
    assert (await look(harness.store, job.ref)).crashes == 1


@pytest.mark.accepts("REC-075")
async def test_a_second_recovery_or_beat_changes_nothing_more(harness: Harness) -> None:
    lost = await one_leased(harness.store)
    await harness.age(61)
    held = await one_leased(harness.store)

    assert [outcome.lease.id for outcome in await Reaper(harness.store).recover()] == [lost.id]
    before = await look(harness.store, lost.ref)
    assert await Reaper(harness.store).recover() == []
    assert await look(harness.store, lost.ref) == before

    answers, seen = [], []
    for _ in range(2):
        beats = [Beat(held.lease, 60.0, progress=0.5), Beat(lost.lease, 60.0)]
        answers.append((await harness.store.heartbeat(WorkerInfo(id="w"), beats)).verdicts)
        job = await look(harness.store, held.ref)
        assert job.lease_until
        assert job.heartbeat_at
        assert (job.lease_until - job.heartbeat_at).total_seconds() == pytest.approx(60.0, abs=0.01)
        seen.append(replace(job, lease_until=None, heartbeat_at=None))
    assert answers == [{held.lease: Verdict.HELD, lost.lease: Verdict.LOST}] * 2
    assert seen[0] == seen[1] == replace(held, lease_until=None, heartbeat_at=None, progress=0.5)
    assert await look(harness.store, lost.ref) == before


async def test_a_reaper_that_dies_half_way_is_replaced(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.age(61)
    [first] = (await reclaim(harness)).jobs
    await harness.age(31)

    [second] = (await reclaim(harness)).jobs

    assert second.ref == job.ref
    assert second.fence > first.fence
    assert await harness.store.settle([retried(first.lease, trouble(), 0.0, crashed=True)]) == [Settled.LOST]
    assert await harness.store.settle([retried(second.lease, trouble(), 0.0, crashed=True)]) == [
        Settled.APPLIED
    ]
    stored = await look(harness.store, job.ref)
    assert (stored.attempts, stored.crashes) == (1, 1)


async def test_the_longest_silent_come_first_and_the_limit_holds(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    early = await leased(harness.store, 1, seconds=10.0)
    late = await leased(harness.store, 2, seconds=20.0)
    await harness.age(30)

    first = await reclaim(harness, 1)
    rest = await reclaim(harness)

    assert [job.ref for job in first.jobs] == [early[0].ref]
    assert {job.ref for job in rest.jobs} == {job.ref for job in late}


async def test_only_the_queues_that_were_named(harness: Harness) -> None:
    await one_leased(harness.store)
    await harness.age(61)

    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["other"]))).jobs == []
    assert len((await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["other", "q"]))).jobs) == 1


async def test_the_leases_of_a_dead_owner_are_taken_at_once(harness: Harness) -> None:
    await enqueued(harness.store, 4)
    await leased(harness.store, 1, owner="silent", seconds=10.0)
    await harness.age(11)
    dead = await leased(harness.store, 2, owner="dead")
    await leased(harness.store, 1, owner="alive")

    taken = await reclaim(harness, of=["dead"])

    assert {job.ref for job in taken.jobs} == {job.ref for job in dead}


async def test_the_leases_of_several_dead_owners_are_taken_in_one_call(harness: Harness) -> None:
    await enqueued(harness.store, 4)
    dead = [*await leased(harness.store, 1, owner="one"), *await leased(harness.store, 2, owner="another")]
    await leased(harness.store, 1, owner="alive")

    taken = await reclaim(harness, of=["one", "another", "nobody"])

    assert {(job.ref, job.owner) for job in taken.jobs} == {(job.ref, job.owner) for job in dead}


async def test_it_reports_when_the_next_lease_ends(harness: Harness) -> None:
    assert (await reclaim(harness)).next_end is None
    await one_leased(harness.store, seconds=60.0)

    found = await reclaim(harness)
    assert found.next_end == pytest.approx(60.0, abs=10.0)


async def test_a_lease_that_is_only_prolonged_is_not_the_next_to_end(harness: Harness) -> None:
    """Or a reaper that sleeps until the next end would not sleep at all."""
    await one_leased(harness.store, seconds=60.0)
    await harness.age(100)
    blind = [Blind(70.0, 0.0)]
    assert (await reclaim(harness, blind=blind)).next_end is None

    await one_leased(harness.store, seconds=50.0)
    assert (await reclaim(harness, blind=blind)).next_end == pytest.approx(50.0, abs=10.0)


async def test_time_in_which_nobody_could_beat_does_not_count(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=60.0)
    await harness.age(100)  # silent for 100 s, but the store was down for the last 70 of them

    assert (await reclaim(harness, blind=[Blind(70.0, 0.0)])).jobs == []
    await harness.age(20)  # 50 s of hearing
    assert (await reclaim(harness, blind=[Blind(90.0, 20.0)])).jobs == []
    await harness.age(15)  # 65 s of hearing
    taken = await reclaim(harness, blind=[Blind(105.0, 35.0)])
    assert [found.ref for found in taken.jobs] == [job.ref]


async def test_time_after_the_clock_was_read_does_not_count(harness: Harness) -> None:
    """A holder that waited for a lock, or on a line that was cut, may come first when all can reach the store again."""
    clock = await harness.store.clock()
    job = await one_leased(harness.store, seconds=60.0)
    await harness.age(61)

    long_ago, later = clock.now - timedelta(seconds=30), clock.now + timedelta(hours=1)
    assert (await reclaim(harness, as_of=long_ago)).jobs == []
    blind = [Blind(10.0, 1.0)]  # before it was read: 9 s more
    assert (await reclaim(harness, as_of=clock.now + timedelta(seconds=5), blind=blind)).jobs == []
    found = await reclaim(harness, as_of=later)  # a clock that was put back meanwhile ends no lease early
    assert [taken.ref for taken in found.jobs] == [job.ref]
    await one_leased(harness.store, seconds=60.0)
    assert (await reclaim(harness, as_of=later)).jobs == []


async def test_blindness_before_the_last_beat_changes_nothing(harness: Harness) -> None:
    await one_leased(harness.store, seconds=60.0)
    await harness.age(61)

    assert len((await reclaim(harness, blind=[Blind(1e9, 100.0)])).jobs) == 1


async def test_two_blind_spans_add_up(harness: Harness) -> None:
    await one_leased(harness.store, seconds=60.0)
    await harness.age(100)

    spans = [Blind(90.0, 65.0), Blind(30.0, 5.0)]
    assert (await reclaim(harness, blind=spans)).jobs == []
    assert len((await reclaim(harness, blind=spans[:1])).jobs) == 1


@pytest.mark.accepts("REAP-081")
async def test_a_job_without_a_lease_is_first_given_one_then_reaped(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.forget_lease(job.ref)

    young = await reclaim(harness, grace=3600.0)
    assert (young.jobs, young.adopted) == ([], 0)
    await harness.age(3700)
    adopting = await reclaim(harness, grace=3600.0)
    assert (adopting.jobs, adopting.adopted) == ([], 1)
    stored = await look(harness.store, job.ref)
    assert stored.status is Status.PROCESSING
    assert stored.lease_until is not None
    await harness.age(3700)
    assert [taken.ref for taken in (await reclaim(harness, grace=3600.0)).jobs] == [job.ref]
    [adopted] = [event for event in await harness.store.events(job=job.ref) if event.type == "reaper:adopted"]
    assert adopted.data["details"] == {"owner": "w"}, "the event does not name who holds it"


async def test_a_lease_from_the_future_is_cut_to_its_own_length(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=60.0)
    await harness.age(-7200)  # as if the clock had been put back by two hours

    assert (await reclaim(harness)).adopted == 1
    await harness.age(61)
    assert [taken.ref for taken in (await reclaim(harness)).jobs] == [job.ref]
