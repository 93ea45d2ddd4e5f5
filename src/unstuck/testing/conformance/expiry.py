"""Jobs that must start by a certain time: never handed out late, failed by a reaper, and no dead letters."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from unstuck.protocol.job import EXPIRED, Category, Ending, Job, Status
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, failed, released, retried
from unstuck.protocol.retry import expired_fate, judge
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import (
    QUEUE,
    counts,
    enqueued,
    leased,
    look,
    new,
    now,
    one_leased,
    states,
    trouble,
)
from unstuck.testing.conformance.on_failure import FOLLOW_UP
from unstuck.testing.harnesses.harness import Harness


async def reaped(store: Store, limit: int = 10, **facts: object) -> list[Job]:
    return (await store.reclaim(Recovery("reaper", 10.0, limit, **facts))).jobs  # type: ignore[arg-type]


async def test_a_job_that_expired_is_not_handed_out(harness: Harness) -> None:
    late, soon = await enqueued(harness.store, expires=60.0), await enqueued(harness.store, expires=3600.0)
    [plain] = await enqueued(harness.store)

    await harness.age(61)

    assert {job.id for job in await leased(harness.store, 5)} == {soon[0].id, plain.id}
    assert (await look(harness.store, late[0])).status is Status.PENDING


async def test_one_lease_call_finds_the_jobs_behind_many_that_expired(harness: Harness) -> None:
    await enqueued(harness.store, 30, expires=60.0)
    [plain] = await enqueued(harness.store)
    await harness.age(61)

    assert [job.id for job in await leased(harness.store, 1)] == [plain.id]


@pytest.mark.parametrize("facts", [{"at_a_time": 3}, {"per_lane": 1}, {"only_new": True}])
async def test_limits_and_lanes_hand_out_nothing_late(harness: Harness, facts: dict[str, int]) -> None:
    await enqueued(harness.store, 2, expires=60.0, lane="a")
    await enqueued(harness.store, 1, expires=60.0, priority=9)
    [ann, bob] = [(await enqueued(harness.store, lane=lane))[0] for lane in ("a", "b")]
    await harness.age(61)

    jobs = await harness.store.lease({QUEUE: Share(60.0, 5, **facts)}, 5, "w")  # type: ignore[arg-type]

    assert {job.id for job in jobs} == {ann.id, bob.id}


async def test_a_lease_of_several_queues_hands_out_nothing_late(harness: Harness) -> None:
    await harness.store.enqueue([new("one", expires=60.0), new("two"), new("two", expires=60.0, priority=9)])
    await harness.age(61)

    share = Share(60.0, 5)
    assert [job.queue for job in await harness.store.lease({"one": share, "two": share}, 5, "w")] == ["two"]


async def test_an_instant_is_as_good_as_seconds(harness: Harness) -> None:
    past, future = now() - timedelta(seconds=30), now() + timedelta(hours=1)
    [late] = await enqueued(harness.store, expires=past)
    [due] = await enqueued(harness.store, expires=future)

    assert [job.id for job in await leased(harness.store, 5)] == [due.id]
    found = (await look(harness.store, late)).expires_at, (await look(harness.store, due)).expires_at
    assert all(
        at is not None and abs(at - wanted) < timedelta(milliseconds=2)
        for at, wanted in zip(found, (past, future), strict=True)
    )


async def test_seconds_are_counted_from_the_enqueue(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)

    job = await look(harness.store, ref)
    assert job.expires_at == job.created_at + timedelta(seconds=60)


async def test_a_reaper_takes_it_over_as_it_is(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0, payload={"n": 1})
    assert await reaped(harness.store) == []
    await harness.age(61)

    [job] = await reaped(harness.store)

    assert (job.ref, job.status, job.attempts, job.owner) == (ref, Status.PENDING, 0, None)
    assert job.payload == {"n": 1}
    held = await look(harness.store, ref)
    assert (held.status, held.attempts, held.owner) == (Status.PROCESSING, 0, "reaper")
    assert held.fence == job.fence
    assert await leased(harness.store, 5) == []
    assert await reaped(harness.store) == [], "it is held"


async def test_it_fails_with_its_own_code_and_is_no_dead_letter(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.age(61)

    await Reaper(harness.store).recover()

    job = await look(harness.store, ref)
    assert (job.status, job.expired, job.dead, job.attempts) == (Status.FAILED, True, False, 0)
    assert job.error is not None
    assert (job.error.category, job.error.code) == (Category.PERMANENT, EXPIRED)
    assert (await harness.store.find(Filter(dead=True))).jobs == []
    assert [one.id for one in (await harness.store.find(Filter(code=EXPIRED))).jobs] == [ref.id]
    assert await harness.store.requeue(Filter(dead=True)) == 0
    of = await counts(harness.store)
    assert (of.failed, of.cancelled, of.pending, of.processing) == (1, 1, 0, 0)
    assert of.totals == {"cancelled": 1, EXPIRED: 1}
    events = await harness.store.events(job=ref)
    assert [event.type for event in events] == [EXPIRED], "and no alert"
    assert events[0].data["details"]["code"] == EXPIRED


async def test_a_delayed_job_expires_before_it_is_due(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0, delay=3600.0)
    await harness.age(61)

    await Reaper(harness.store).recover()

    assert (await look(harness.store, ref)).expired
    await harness.age(3600)
    assert await leased(harness.store) == []


async def test_the_answer_names_the_moment_at_which_the_next_job_expires(harness: Harness) -> None:
    await enqueued(harness.store, expires=3600.0)
    await enqueued(harness.store, expires=60.0)

    found = await harness.store.reclaim(Recovery("reaper", 10.0, 10))

    assert found.next_end is not None
    assert 0 < found.next_end <= 60.0


async def test_a_reaper_of_some_queues_leaves_the_others_alone(harness: Harness) -> None:
    await harness.store.enqueue([new("mine", expires=60.0), new("other", expires=60.0)])
    await harness.age(61)

    assert [job.queue for job in await reaped(harness.store, queues=["mine"])] == ["mine"]


async def test_a_reaper_takes_no_more_than_it_asked_for(harness: Harness) -> None:
    await one_leased(harness.store, seconds=30.0)
    await enqueued(harness.store, 3, expires=60.0)
    await harness.age(61)

    found = [len(await reaped(harness.store, 2)) for _ in range(3)]

    assert found == [2, 2, 0]


async def test_a_job_that_was_started_in_time_does_not_expire(harness: Harness) -> None:
    job = await one_leased(harness.store, expires=60.0, seconds=3600.0)
    await harness.age(61)
    assert await reaped(harness.store) == []

    [answer] = await harness.store.settle([retried(job.lease, trouble(), 0.0)])
    assert answer is Settled.APPLIED
    assert await reaped(harness.store) == [], "it was started, and is tried again"

    [again] = await leased(harness.store)
    assert (again.id, again.attempts) == (job.id, 2)


async def test_a_lease_that_was_given_back_is_no_start(harness: Harness) -> None:
    job = await one_leased(harness.store, expires=60.0, seconds=3600.0)
    await harness.age(61)
    await harness.store.settle([released(job.lease)])

    assert await leased(harness.store) == []
    await Reaper(harness.store).recover()

    assert (await look(harness.store, job.ref)).expired


async def test_a_reaper_finds_one_that_was_given_back_though_nobody_asks_for_jobs(harness: Harness) -> None:
    job = await one_leased(harness.store, expires=60.0, seconds=3600.0)
    await harness.age(61)
    await harness.store.settle([released(job.lease)])

    [taken] = await reaped(harness.store)

    assert taken.id == job.id


async def test_a_lease_that_ran_out_is_a_start(harness: Harness) -> None:
    job = await one_leased(harness.store, expires=60.0, seconds=30.0)
    await harness.age(61)

    await Reaper(harness.store).recover()

    found = await look(harness.store, job.ref)
    assert (found.status, found.attempts, found.crashes) == (Status.PENDING, 1, 1)
    assert [again.id for again in await leased(harness.store)] == [job.id]


async def test_the_next_reaper_comes_to_the_same_result_if_one_dies_in_between(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.age(61)
    [taken] = await reaped(harness.store)
    await harness.age(11)

    [outcome] = await Reaper(harness.store).recover()

    assert outcome.event == EXPIRED
    job = await look(harness.store, ref)
    assert (job.expired, job.attempts, job.crashes) == (True, 0, 0)
    assert await harness.store.settle([judge(taken)]) == [Settled.LOST]


async def test_one_that_a_reaper_gives_back_has_spent_nothing(harness: Harness) -> None:
    """As an operator may ask for, or a reaper of a release that knows no expiry."""
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.age(61)
    for outcome in (released, lambda lease: retried(lease, trouble(), 0.0, crashed=True)):
        [taken] = await reaped(harness.store)
        assert await harness.store.settle([outcome(taken.lease)]) == [Settled.APPLIED]

    job = await look(harness.store, ref)
    assert (job.status, job.attempts, job.crashes) == (Status.PENDING, 0, 0)
    assert await leased(harness.store) == []


async def test_a_settle_that_is_repeated_counts_once(harness: Harness) -> None:
    await enqueued(harness.store, expires=60.0, on_failure=FOLLOW_UP)
    await harness.age(61)
    [taken] = await reaped(harness.store)
    outcome = judge(taken)

    answers = [await harness.store.settle([outcome]) for _ in range(2)]

    assert answers == [[Settled.APPLIED], [Settled.REPEATED]]
    assert (await counts(harness.store)).totals[EXPIRED] == 1
    assert await states(harness.store, "reports") == {"pending": 1}


async def test_who_retries_it_by_hand_wants_it_however_late(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.age(61)
    await Reaper(harness.store).recover()

    assert await harness.store.requeue(Filter(ids=(ref.id,), queue=ref.queue)) == 1

    assert (await look(harness.store, ref)).expires_at is None
    assert await reaped(harness.store) == []
    assert [job.id for job in await leased(harness.store)] == [ref.id]


async def test_one_that_is_started_over_has_a_time_of_its_own(harness: Harness) -> None:
    await enqueued(harness.store, key="k", expires=60.0)
    await harness.age(61)
    await Reaper(harness.store).recover()

    await harness.store.enqueue([new(key="k", again=True, expires=600.0)])
    await harness.age(61)
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.store.enqueue([new(key="k", again=True)])

    assert (await look(harness.store, job.ref)).expires_at is None


async def test_an_edit_does_not_make_it_younger(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0, delay=30.0)
    await harness.age(61)
    assert await leased(harness.store) == []

    await harness.store.edit([ref], priority=9, run_at=now())

    await Reaper(harness.store).recover()
    assert (await look(harness.store, ref)).expired


async def test_one_that_expired_can_be_cancelled(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.age(61)
    assert await leased(harness.store) == []

    assert await harness.store.cancel([ref]) == 1

    job = await look(harness.store, ref)
    assert (job.cancelled, job.expired) == (True, False)
    assert await reaped(harness.store) == []


async def test_nobody_is_woken_for_jobs_that_expired(harness: Harness) -> None:
    await enqueued(harness.store, 3, expires=60.0)
    await harness.age(61)
    await leased(harness.store)  # takes the wakeup of the enqueue

    waiting = asyncio.create_task(harness.store.wait([QUEUE], 30.0))
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    waiting.cancel()

    assert not done


async def test_a_paused_queue_loses_what_expires_meanwhile(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=60.0)
    await harness.store.pause(QUEUE, "repairs")
    await harness.age(61)

    await Reaper(harness.store).recover()

    assert (await look(harness.store, ref)).expired


async def test_workers_and_reapers_never_share_a_job_that_expires(harness: Harness) -> None:
    """Each job is either started once, before it expired, or failed once."""
    moment = now() + timedelta(seconds=0.4)
    refs = await enqueued(harness.store, 60, expires=moment)
    stores = [await harness.another() for _ in range(4)]
    started: list[Job] = []
    expired: list[str] = []

    async def work(store: Store) -> None:
        while len(started) + len(expired) < len(refs):
            for job in await leased(store, 2):
                assert job.started_at is not None
                assert job.expires_at is not None
                assert job.started_at < job.expires_at
                started.append(job)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0)

    async def reap(store: Store) -> None:
        while len(started) + len(expired) < len(refs):
            taken = (await store.reclaim(Recovery("reaper", 10.0, 5))).jobs
            outcomes = [expired_fate(job) for job in taken]
            answers = await store.settle(outcomes)
            assert set(answers) <= {Settled.APPLIED}
            expired.extend(outcome.lease.id for outcome in outcomes)
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(work(stores[0]), work(stores[1]), reap(stores[2]), reap(stores[3]))

    assert sorted([*(job.id for job in started), *expired]) == sorted(ref.id for ref in refs)


async def test_a_dead_letter_of_the_same_code_word_stays_one(harness: Harness) -> None:
    """A handler may use the word: then its job failed, and did not expire."""
    job = await one_leased(harness.store)

    await harness.store.settle([failed(job.lease, replace(trouble(), code=EXPIRED))])

    found = await look(harness.store, job.ref)
    assert (found.dead, found.expired, found.settled) == (True, False, Ending.FAILED)
