"""enqueue: what is acknowledged is there, once, and stays as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from unstuck.protocol.ids import new_id
from unstuck.protocol.job import NewJob, Status
from unstuck.protocol.leases import Share
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, failed
from unstuck.testing.conformance.given import enqueued, leased, look, new, now, one_leased, states, trouble
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("MQ-005", "EMB-001")
async def test_an_acknowledged_job_is_there_for_every_other_client(harness: Harness) -> None:
    [answer] = await harness.store.enqueue([new(payload={"to": "ann"})])

    assert answer.created
    job = await look(await harness.another(), answer.ref)
    assert (job.status, job.attempts, job.fence, job.owner) == (Status.PENDING, 0, 0, None)


@pytest.mark.accepts("MQ-003")
async def test_a_payload_comes_out_as_it_went_in(harness: Harness) -> None:
    payload = {
        "text": "Ünïcode \u2028 <script> {{7*7}} \x1b[31m",
        "numbers": [0, -1, 2**53 + 1, 2**63, 10**40, 1.5, -0.0],
        "nothing": None,
        "nested": {"a": [[], {}, [{"b": True}]]},
        "owner": "looks like ours",
        "__proto__": {"$ref": ".."},
    }
    await harness.store.enqueue([new(payload=payload)])

    [job] = await leased(harness.store)
    assert job.task == "task"
    assert msgspec.json.encode(job.payload) == msgspec.json.encode(payload)


async def test_raw_json_is_stored_as_it_is(harness: Harness) -> None:
    await harness.store.enqueue([new(payload=msgspec.Raw(b'{"a": 1}'))])

    [job] = await leased(harness.store)
    assert job.payload == {"a": 1}


async def test_everything_a_reaper_needs_rides_on_the_job(harness: Harness) -> None:
    facts: dict[str, Any] = {
        "max_attempts": 7,
        "max_crashes": 2,
        "backoff": (1.0, 2.5),
        "lapse_backoff": (30.0,),
        "priority": 3,
        "timeout": 9.5,
        "parent": "p",
        "trace": "t",
        "webhook": "hook",
    }
    [ref] = await enqueued(harness.store, **facts)

    job = await look(harness.store, ref)
    assert {name: getattr(job, name) for name in facts} == facts


async def test_no_jobs_means_no_work(harness: Harness) -> None:
    assert await harness.store.enqueue([]) == []
    assert await harness.store.count() == []


@pytest.mark.accepts("EMB-141")
async def test_a_second_job_with_a_key_answers_existing_and_changes_nothing(harness: Harness) -> None:
    [first] = await harness.store.enqueue([new(key="k", payload={"n": 1})])
    [same] = await harness.store.enqueue([new(key="k", payload={"n": 1})])
    [other] = await harness.store.enqueue([new(key="k", payload={"n": 2}, priority=9)])

    assert (first.created, same.created, other.created) == (True, False, False)
    assert (same.same, other.same) == (True, False)
    assert first.ref == same.ref == other.ref
    job = await look(harness.store, first.ref)
    assert (job.payload, job.priority, job.key) == ({"n": 1}, 0, "k")


async def test_a_key_belongs_to_its_queue(harness: Harness) -> None:
    answers = await harness.store.enqueue([new("a", key="k"), new("b", key="k")])

    assert [answer.created for answer in answers] == [True, True]


async def test_the_same_key_twice_in_one_batch_is_one_job(harness: Harness) -> None:
    answers = await harness.store.enqueue([new(key="k"), new(key="other"), new(key="k")])

    assert [answer.created for answer in answers] == [True, True, False]
    assert await states(harness.store) == {"pending": 2}


async def test_the_same_id_may_live_in_two_queues(harness: Harness) -> None:
    await harness.store.enqueue([new("a", id="same", payload="in a"), new("b", id="same", payload="in b")])

    taken = await harness.store.lease({"a": Share(60.0, 5), "b": Share(60.0, 5)}, 5, "w")
    assert sorted((job.queue, job.payload) for job in taken) == [("a", "in a"), ("b", "in b")]
    await harness.store.settle([completed(job.lease) for job in taken if job.queue == "a"])
    assert await states(harness.store, "b") == {"processing": 1}


async def test_a_repeated_enqueue_after_a_lost_answer_is_harmless(harness: Harness) -> None:
    jobs = [new() for _ in range(3)]
    await harness.store.enqueue(jobs)
    again = await (await harness.another()).enqueue(jobs)

    assert [answer.created for answer in again] == [False] * 3
    assert await states(harness.store) == {"pending": 3}


@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_again_starts_a_finished_job_over_with_new_content(harness: Harness, end: str) -> None:
    job = await one_leased(harness.store, key="k", payload={"n": 1}, max_attempts=1)
    ending = completed(job.lease, "old") if end == "completed" else failed(job.lease, trouble())
    await harness.store.settle([ending])

    [answer] = await harness.store.enqueue([new(key="k", payload={"n": 2}, again=True, max_attempts=5)])

    fresh = await look(harness.store, answer.ref)
    assert answer.created
    assert (fresh.status, fresh.payload, fresh.attempts, fresh.max_attempts) == (
        Status.PENDING,
        {"n": 2},
        0,
        5,
    )
    assert (fresh.result, fresh.error, fresh.finished_at) == (None, None, None)
    [next_] = await leased(harness.store)
    assert next_.fence > job.fence


async def test_again_leaves_a_running_job_alone(harness: Harness) -> None:
    job = await one_leased(harness.store, key="k", payload={"n": 1})

    [answer] = await harness.store.enqueue([new(key="k", payload={"n": 2}, again=True)])

    assert not answer.created
    assert (await look(harness.store, job.ref)).payload == {"n": 1}


async def test_a_delayed_job_is_leased_when_its_time_has_come(harness: Harness) -> None:
    await enqueued(harness.store, delay=30.0)

    assert await leased(harness.store) == []
    await harness.age(31)
    assert len(await leased(harness.store)) == 1


async def test_run_at_is_an_instant_and_a_past_one_means_now(harness: Harness) -> None:
    [future] = await enqueued(harness.store, run_at=now() + timedelta(hours=1))
    [past] = await enqueued(harness.store, run_at=now() - timedelta(days=365))

    assert [job.ref for job in await leased(harness.store, 5)] == [past]
    assert abs(((await look(harness.store, future)).run_at - now()).total_seconds() - 3600) < 60
    assert (await harness.store.count())[0].delayed == 1


async def test_a_time_in_the_past_is_a_place_in_line(harness: Harness) -> None:
    [plain] = await enqueued(harness.store)
    [owed] = await enqueued(harness.store, run_at=now() - timedelta(minutes=5))

    assert [job.ref for job in await leased(harness.store, 2)] == [owed, plain]


async def test_names_have_letters_of_any_script_and_those_of_tasks_spaces_and_slashes(
    harness: Harness,
) -> None:
    job = NewJob(queue="почта-é", task="Send Email/now", id=new_id())
    await harness.store.enqueue([job])

    [taken] = await leased(harness.store, queue=job.queue)

    assert (taken.queue, taken.task) == (job.queue, job.task)
    assert await harness.store.settle([completed(taken.lease)]) == [Settled.APPLIED]
    assert [of.queue for of in await harness.store.count()] == [job.queue]
    assert len((await harness.store.find(Filter(queue=job.queue, task=job.task))).jobs) == 1
