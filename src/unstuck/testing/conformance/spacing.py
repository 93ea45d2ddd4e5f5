"""Spacing: debounced and throttled jobs, and the key that they share."""

from __future__ import annotations

from typing import Any

import pytest

from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Enqueued, FollowUp, Job, NewJob, Status
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, released, retried
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import (
    QUEUE,
    enqueued,
    leased,
    look,
    new,
    states,
    trouble,
)
from unstuck.testing.harnesses.harness import Harness

INTERVAL = 300.0


def debounced(payload: Any = None, key: str = "k", **facts: Any) -> NewJob:
    return new(key=key, payload=payload, id=new_id(), debounce=INTERVAL, delay=INTERVAL, **facts)


def throttled(payload: Any = None, key: str = "k", **facts: Any) -> NewJob:
    return new(key=key, payload=payload, id=new_id(), throttle=INTERVAL, **facts)


async def add(store: Store, job: NewJob) -> Enqueued:
    [answer] = await store.enqueue([job])
    return answer


async def all_jobs(store: Store, queue: str = QUEUE) -> list[Job]:
    return (await store.find(Filter(queue=queue), 1000)).jobs


async def test_a_debounced_job_runs_once_after_the_last_call_with_what_that_gave(harness: Harness) -> None:
    first = await add(harness.store, debounced({"n": 1}))
    assert [job.payload for job in await leased(harness.store, 5)] == []
    await harness.age(200)
    second = await add(harness.store, debounced({"n": 2}))
    await harness.age(200)
    third = await add(harness.store, debounced({"n": 2}))

    assert [first.created, second.created, third.created] == [True, False, False]
    assert [second.same, third.same] == [False, True]
    assert first.ref == second.ref == third.ref
    await harness.age(200)
    assert await leased(harness.store, 5) == [], "the interval did not begin again"
    await harness.age(101)
    [job] = await leased(harness.store, 5)
    assert (job.ref, job.payload, job.key, job.attempts) == (first.ref, {"n": 2}, "k", 1)


async def test_a_debounced_call_replaces_all_that_the_job_had_except_for_its_id_and_age(
    harness: Harness,
) -> None:
    first = await add(
        harness.store,
        debounced(1, priority=9, lane="a", trace="t1", parent="p1", webhook="w1", timeout=5.0, max_crashes=4),
    )
    await harness.age(100)
    before = await look(harness.store, first.ref)
    await add(harness.store, debounced(2, lane="b", trace="t2", max_attempts=7, backoff=(9.0,)))

    job = await look(harness.store, first.ref)
    facts = (
        job.payload,
        job.priority,
        job.lane,
        job.trace,
        job.parent,
        job.webhook,
        job.timeout,
        job.max_crashes,
    )
    assert facts == (2, 0, "b", "t2", None, None, None, None)
    assert (job.max_attempts, job.backoff, job.digest == before.digest) == (7, (9.0,), False)
    assert job.created_at == before.created_at
    assert abs((job.run_at - before.run_at).total_seconds() - 100) < 60
    assert await harness.store.count() != []
    await harness.age(301)
    assert [job.lane for job in await leased(harness.store, 5)] == ["b"]


async def test_a_debounced_call_replaces_when_the_job_expires_and_what_follows_its_failure(
    harness: Harness,
) -> None:
    first = await add(harness.store, throttled(1, expires=60.0))
    follow_up = FollowUp(queue=QUEUE, task="report", names=("job", "task", "failure"))
    await add(harness.store, debounced(2, on_failure=follow_up))

    job = await look(harness.store, first.ref)
    assert (job.payload, job.expires_at, job.on_failure) == (2, None, follow_up)
    await harness.age(301)
    await harness.store.reclaim(Recovery("reaper", 60.0, 10))
    assert [job.payload for job in await leased(harness.store)] == [2]


async def test_a_call_while_the_debounced_job_runs_makes_a_new_one_with_the_last_payload(
    harness: Harness,
) -> None:
    first = await add(harness.store, debounced("old"))
    assert (
        await harness.store.edit([first.ref], run_at=(await look(harness.store, first.ref)).created_at) == 1
    )
    [running] = await leased(harness.store)

    second = await add(harness.store, debounced("newer"))
    third = await add(harness.store, debounced("newest"))

    assert (second.created, third.created, second.ref == third.ref) == (True, False, True)
    assert second.ref != first.ref == running.ref
    assert (await look(harness.store, first.ref)).payload == "old"
    await harness.store.settle([completed(running.lease)])
    await harness.age(301)
    assert [job.payload for job in await leased(harness.store, 5)] == ["newest"]


@pytest.mark.parametrize("ending", ["retried", "released", "requeued"])
async def test_a_job_that_came_back_from_a_worker_is_not_replaced(harness: Harness, ending: str) -> None:
    first = await add(harness.store, debounced("old"))
    if ending == "requeued":
        await harness.store.cancel([first.ref])
        await harness.store.requeue(Filter(queue=QUEUE))
    else:
        await harness.store.edit([first.ref], run_at=(await look(harness.store, first.ref)).created_at)
        [job] = await leased(harness.store)
        end = retried(job.lease, trouble(), 60.0) if ending == "retried" else released(job.lease, 60.0)
        await harness.store.settle([end])

    second = await add(harness.store, debounced("new"))

    assert second.created
    assert {job.payload for job in await all_jobs(harness.store)} == {"old", "new"}


async def test_a_call_after_the_interval_makes_a_new_debounced_job(harness: Harness) -> None:
    first = await add(harness.store, debounced(1))
    await harness.age(301)
    second = await add(harness.store, debounced(2))

    assert (second.created, first.ref == second.ref) == (True, False)
    assert [job.payload for job in await leased(harness.store, 5)] == [1]


async def test_a_cancelled_debounced_job_stays_cancelled_and_the_next_call_makes_a_new_one(
    harness: Harness,
) -> None:
    first = await add(harness.store, debounced(1))
    await harness.store.cancel([first.ref])

    second = await add(harness.store, debounced(2))

    assert second.created
    assert (await look(harness.store, first.ref)).cancelled
    await harness.store.requeue(Filter(queue=QUEUE))
    third = await add(harness.store, debounced(3))
    assert (third.created, third.ref) == (False, second.ref)
    assert (await look(harness.store, first.ref)).payload == 1


async def test_a_throttled_job_is_the_first_of_its_interval_and_others_change_nothing(
    harness: Harness,
) -> None:
    first = await add(harness.store, throttled({"n": 1}))
    second = await add(harness.store, throttled({"n": 2}, priority=9))
    [job] = await leased(harness.store, 5)
    third = await add(harness.store, throttled({"n": 1}))
    await harness.store.settle([completed(job.lease)])
    fourth = await add(harness.store, throttled({"n": 4}))

    answers = [first, second, third, fourth]
    assert [answer.created for answer in answers] == [True, False, False, False]
    assert [answer.same for answer in answers] == [True, False, True, False]
    assert {answer.ref for answer in answers} == {job.ref}
    assert (job.payload, job.priority, job.key) == ({"n": 1}, 0, "k")
    assert await states(harness.store) == {"completed": 1}


async def test_the_interval_of_a_throttled_job_begins_with_the_first_call_and_not_again(
    harness: Harness,
) -> None:
    first = await add(harness.store, throttled(1))
    await harness.age(200)
    assert not (await add(harness.store, throttled(2))).created
    await harness.age(101)
    third = await add(harness.store, throttled(3))

    assert (third.created, third.ref == first.ref) == (True, False)
    assert sorted(job.payload for job in await leased(harness.store, 5)) == [1, 3]


async def test_a_throttled_call_is_dropped_also_if_the_job_was_deleted(harness: Harness) -> None:
    first = await add(harness.store, throttled(1))
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    assert await harness.store.delete(Filter(queue=QUEUE)) == 1

    second = await add(harness.store, throttled(2))

    assert (second.created, second.same, second.ref) == (False, True, first.ref)
    assert await all_jobs(harness.store) == []


async def test_a_debounced_call_after_its_job_was_deleted_makes_a_new_one(harness: Harness) -> None:
    first = await add(harness.store, debounced(1))
    await harness.store.cancel([first.ref])
    assert await harness.store.delete(Filter(queue=QUEUE)) == 1

    second = await add(harness.store, debounced(2))

    assert (second.created, [job.payload for job in await all_jobs(harness.store)]) == (True, [2])


async def test_keys_are_spaced_each_for_itself_and_in_its_queue(harness: Harness) -> None:
    jobs = [
        throttled(key="a"),
        throttled(key="b"),
        throttled(key="a"),
        debounced(key="c"),
        debounced(key="c"),
    ]
    elsewhere = NewJob(queue="other", task="task", id=new_id(), key="a", throttle=INTERVAL)
    answers = await harness.store.enqueue([*jobs, elsewhere])

    assert [answer.created for answer in answers] == [True, True, False, True, False, True]
    assert answers[0].ref == answers[2].ref
    assert answers[3].ref == answers[4].ref
    assert await states(harness.store) == {"pending": 3}


async def test_a_batch_of_plain_and_spaced_jobs_is_in_line_as_it_was_given(harness: Harness) -> None:
    jobs = [
        new(payload=1),
        throttled(2, "a"),
        new(payload=3),
        throttled(0, "a"),
        throttled(4, "b"),
        new(payload=5),
    ]
    answers = await harness.store.enqueue(jobs)

    assert [answer.created for answer in answers] == [True, True, True, False, True, True]
    assert [job.payload for job in await leased(harness.store, 9)] == [1, 2, 3, 4, 5]


async def test_a_job_with_a_key_of_its_own_and_spaced_jobs_of_that_key_do_not_touch(harness: Harness) -> None:
    await harness.store.enqueue([new(key="k", payload="kept")])
    first = await add(harness.store, debounced("spaced"))
    [again] = await harness.store.enqueue([new(key="k", payload="other")])

    assert (first.created, again.created, again.ref == first.ref) == (True, False, False)
    assert {job.payload for job in await all_jobs(harness.store)} == {"kept", "spaced"}


async def test_spaced_jobs_of_either_kind_share_the_key(harness: Harness) -> None:
    first = await add(harness.store, debounced(1))
    dropped = await add(harness.store, throttled(2))
    last = await add(harness.store, debounced(3))

    assert [first.created, dropped.created, last.created] == [True, False, False]
    assert [job.payload for job in await all_jobs(harness.store)] == [3]

    answers = await harness.store.enqueue([throttled(4, "other"), debounced(5, "other")])
    assert [answer.created for answer in answers] == [True, False]
    assert sorted(job.payload for job in await all_jobs(harness.store)) == [3, 5]
    assert await leased(harness.store) == [], "the job is still in line"


async def test_a_repeated_call_after_a_lost_answer_adds_nothing(harness: Harness) -> None:
    jobs = [throttled(1, "a"), debounced(2, "b")]
    await harness.store.enqueue(jobs)
    again = await harness.store.enqueue(jobs)
    await harness.age(301)
    late = await harness.store.enqueue(jobs)

    assert [answer.created for answer in [*again, *late]] == [False] * 4
    assert await states(harness.store) == {"pending": 2}


async def test_a_call_that_is_repeated_late_does_not_take_the_place_of_a_later_one(harness: Harness) -> None:
    first, second = debounced("first"), debounced("second")
    await add(harness.store, first)
    await add(harness.store, debounced("later"))
    again = await add(harness.store, first)
    assert (again.created, again.id) == (False, first.id)
    assert [job.payload for job in await all_jobs(harness.store)] == ["later"]

    await harness.age(301)
    [job] = await leased(harness.store)
    await add(harness.store, second)
    again = await add(harness.store, first)
    assert (again.created, again.ref) == (False, job.ref)
    waiting = (await harness.store.find(Filter(queue=QUEUE, status=Status.PENDING))).jobs
    assert [job.payload for job in waiting] == ["second"]


async def test_a_follow_up_job_is_spaced_like_any_other(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    jobs = await leased(harness.store, 3)
    for number, job in enumerate(jobs):
        await harness.store.settle([completed(job.lease, then=(debounced(number),))])

    waiting = (await harness.store.find(Filter(queue=QUEUE, status=Status.PENDING))).jobs
    assert [job.payload for job in waiting] == [2]


async def test_a_key_may_have_any_letters(harness: Harness) -> None:
    key = "käse: {7} *?[x] ' \\ 🧀"
    assert (await add(harness.store, throttled(key=key))).created
    assert not (await add(harness.store, throttled(key=key))).created
    assert (await add(harness.store, throttled(key=key.replace("x", "y")))).created


async def test_a_recovery_forgets_intervals_that_are_over_and_no_others(harness: Harness) -> None:
    await add(harness.store, throttled(1, "old"))
    await harness.age(200)
    await add(harness.store, throttled(1, "young"))
    await harness.age(101)
    await harness.store.reclaim(Recovery("reaper", 60.0, 10))

    assert not (await add(harness.store, throttled(2, "young"))).created
    assert (await add(harness.store, throttled(2, "old"))).created
