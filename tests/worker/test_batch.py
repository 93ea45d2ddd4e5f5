"""Batches: one call for many jobs, an answer for each."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import (
    Permanent,
    Rate,
    Retry,
    Snooze,
    Status,
    Transient,
    Unstuck,
    UnstuckError,
    Worker,
    current_job,
    current_jobs,
)
from unstuck.app.handle import Handle
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import states

pytestmark = pytest.mark.anyio
LATER = Retry(backoff=(60.0,))  # not due again within the burst that it failed in, however long that takes


async def words(handles: Sequence[Handle[object]]) -> list[tuple[str, int]]:
    """Where each job is, and after how many attempts."""
    return [(str(job.status), job.attempts) for job in [await handle.job() for handle in handles]]


async def test_every_job_gets_the_answer_at_its_place(app: Unstuck) -> None:
    sizes: list[int] = []

    @app.batch(size=10, retry=LATER)
    async def shout(texts: list[str]) -> list[str | Exception]:
        sizes.append(len(texts))
        return [ValueError("too quiet") if text == "hush" else text.upper() for text in texts]

    texts = [f"text {number}" for number in range(24)] + ["hush"]
    handles = await app.enqueue_many([shout.call(text) for text in texts])
    await burst(app)

    assert [await handle.result() for handle in handles[:24]] == [text.upper() for text in texts[:24]]
    assert await words(handles[24:]) == [("pending", 1)]  # a ValueError is worth another try
    assert max(sizes) == 10
    assert sum(sizes) == 25


async def test_answers_may_be_exceptions_of_any_kind(app: Unstuck) -> None:
    answers = {"ok": 1, "later": Snooze(60), "never": Permanent("no"), "again": Transient("try")}

    @app.batch(size=10, retry=LATER)
    async def mixed(names: list[str]) -> list[object]:
        return [answers[name] for name in names]

    handles = await app.enqueue_many([mixed.call(name) for name in answers])
    await burst(app)

    assert await words(handles) == [("completed", 1), ("pending", 0), ("failed", 1), ("pending", 1)]


async def test_a_batch_that_fails_for_a_while_is_retried_as_a_whole(app: Unstuck) -> None:
    calls: list[int] = []

    @app.batch(size=5, retry=Retry(attempts=3, backoff=(0.0,)))
    def flaky(items: list[int]) -> list[int]:
        calls.append(len(items))
        if len(calls) == 1:
            raise ConnectionResetError("gone")
        return items

    handles = await app.enqueue_many([flaky.call(number) for number in range(5)])
    await burst(app)

    assert calls == [5, 5]
    assert await words(handles) == [("completed", 2)] * 5


async def test_a_batch_that_fails_for_good_is_run_one_by_one_and_only_the_culprit_fails(app: Unstuck) -> None:
    calls: list[list[int]] = []

    @app.batch(size=5, retry=3)
    async def picky(items: list[int]) -> list[int]:
        calls.append(items)
        if 3 in items:
            raise Permanent("no threes")
        return items

    handles = await app.enqueue_many([picky.call(number) for number in range(1, 6)])
    await burst(app)

    assert calls == [[1, 2, 3, 4, 5], [1], [2], [3], [4], [5]]
    assert await words(handles) == [("failed" if number == 3 else "completed", 1) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([1], "got 2 jobs and returned 1 answer: one for each is needed"),
        ([1, 2, 3], "got 2 jobs and returned 3 answers: one for each is needed"),
        ("ab", "returned a str: a list with one answer for each job is needed"),
        (b"ab", "returned a bytes: a list"),
        (None, "returned a NoneType: a list"),
        ({"a": 1, "b": 2}, "returned a dict: a list"),
    ],
)
async def test_a_wrong_number_of_answers_fails_nobody_elses_jobs(
    app: Unstuck, answer: object, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.batch(size=2, retry=3)
    async def confused(items: list[int]) -> Any:
        return [items[0]] if len(items) == 1 else answer

    @app.batch(size=2, retry=3)
    async def always(items: list[int]) -> Any:
        return "a text is no list of answers"

    handles: list[Handle[Any]] = await app.enqueue_many([confused.call(1), confused.call(2)])
    hopeless: Handle[Any] = await always.enqueue(1)
    await burst(app)

    assert await words(handles) == [("completed", 1)] * 2  # one by one they got an answer each
    job = await hopeless.job()
    assert job.status is Status.FAILED
    assert job.error is not None
    assert (
        job.error.message == "the batch handler returned a str: a list with one answer for each job is needed"
    )
    [line] = [record.message for record in caplog.records if "a batch of 2 confused jobs" in record.message]
    assert f"failed, so that each is run once more, alone: permanent: the batch handler {told}" in line


async def test_a_payload_that_cannot_be_read_fails_alone(app: Unstuck, harness: SQLiteHarness) -> None:
    seen: list[int] = []

    @app.batch(size=5, retry=3)
    async def numbers(items: list[int]) -> list[int]:
        seen.extend(items)
        return items

    handles = await app.enqueue_many([numbers.call(number) for number in range(3)])
    harness.rows('UPDATE job SET payload = \'{"items": "one"}\' WHERE id = ?', (handles[1].id,))
    await burst(app)

    assert sorted(seen) == [0, 2]
    assert [word for word, _ in await words(handles)] == ["completed", "failed", "completed"]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_call_takes_one_token_however_many_jobs_it_has(
    app: Unstuck, harness: SQLiteHarness, by_hand: bool
) -> None:
    calls: list[int] = []

    @app.batch(size=4, rate=Rate(2, per=3600.0))
    async def embed(items: list[int]) -> list[int]:
        calls.append(len(items))
        return items

    await app.enqueue_many([embed.call(number) for number in range(4)])
    if by_hand:
        await Worker(app).process_jobs(4)
    else:
        await burst(app)
    assert calls == [4]
    assert (await harness.store.take("default", 2, 2, 3600.0)).granted == 1


async def test_calls_one_by_one_after_a_failure_need_tokens_as_well(app: Unstuck) -> None:
    calls: list[float] = []

    @app.batch(size=3, rate=Rate(2, per=0.5))
    async def picky(items: list[int]) -> list[int]:
        calls.append(time.monotonic())
        if len(items) > 1:
            raise Permanent("one of you")
        return items

    handles = await app.enqueue_many([picky.call(number) for number in range(3)])
    await burst(app)

    assert await words(handles) == [("completed", 1)] * 3
    assert len(calls) == 4
    assert min(calls[2] - calls[0], calls[3] - calls[1]) >= 0.5


async def test_each_job_of_a_batch_can_be_distinguished_and_reports_its_progress(app: Unstuck) -> None:
    go_on, found = asyncio.Event(), []

    @app.batch(size=3)
    async def work(items: list[int]) -> list[int]:
        with pytest.raises(UnstuckError, match="current_jobs"):
            current_job()
        for number, job in zip(items, current_jobs(), strict=True):
            found.append(job.id)
            job.progress(number / 10)
        await go_on.wait()
        return items

    handles = await app.enqueue_many([work.call(number) for number in range(1, 4)])
    running = asyncio.create_task(burst(app))

    async def told() -> bool:
        return [(await handle.job()).progress for handle in handles] == [0.1, 0.2, 0.3]

    await until_async(told, 10, "progress of all three")
    go_on.set()
    await running
    assert found == [handle.id for handle in handles]


async def test_a_job_lost_out_of_a_batch_does_not_stop_the_others_but_all_of_them_do(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    go_on, running, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.batch(size=3, heartbeat=0.05)
    async def work(items: list[int]) -> list[int]:
        running.set()
        try:
            await go_on.wait()
        finally:
            stopped.set()
        return items

    handles = await app.enqueue_many([work.call(number) for number in range(3)])
    async with at_work(app) as worker:
        await running.wait()
        held = worker._held.all()
        await handles[0].cancel()
        await until_async(lambda: held[0].context.cancelled, 10, "the worker to hear of it")
        assert not stopped.is_set()
        go_on.set()
        assert [await handle.result(10) for handle in handles[1:]] == [1, 2]
        assert (await handles[0].job()).cancelled

        for event in (running, stopped, go_on):
            event.clear()
        handles = await app.enqueue_many([work.call(number) for number in range(3)])
        await running.wait()
        for handle in handles:
            await handle.cancel()
        async with asyncio.timeout(10):
            await stopped.wait()
    assert await states(harness.store, "default") == {"completed": 2, "failed": 4}


async def test_a_batch_of_one_task_takes_no_jobs_of_another_queue(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    calls: list[list[int]] = []

    @app.batch(size=4, queue="new")
    async def work(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    @app.task(queue="old")
    async def other() -> None: ...

    await app.enqueue_many([work.call(number) for number in range(4)])
    # As an older release left them, in which the task had another queue.
    harness.rows("UPDATE job SET queue = 'old' WHERE json_extract(payload, '$.items') > 1")
    await burst(app)

    assert sum(len(items) for items in calls) == 4
    assert all(len({item > 1 for item in items}) == 1 for items in calls)


async def test_a_batch_is_settled_in_one_call(app: Unstuck) -> None:
    @app.batch(size=50)
    async def work(items: list[int]) -> list[int]:
        return items

    await app.enqueue_many([work.call(number) for number in range(50)])
    book = await spied(app)
    await burst(app)

    assert [len(call.args[0]) for call in book.of("settle")] == [50]


async def test_a_batch_that_is_stopped_is_given_back_unspent(app: Unstuck) -> None:
    running = asyncio.Event()

    @app.batch(size=3)
    async def endless(items: list[int]) -> list[int]:
        running.set()
        await asyncio.Event().wait()
        return items

    handles = await app.enqueue_many([endless.call(number) for number in range(3)])
    async with at_work(app):
        await running.wait()

    assert await words(handles) == [("pending", 0)] * 3


async def test_a_batch_that_cancels_itself_after_one_of_it_was_lost_fails_the_others(app: Unstuck) -> None:
    go_on, running, calls = asyncio.Event(), asyncio.Event(), []

    @app.batch(size=2, heartbeat=0.05, retry=1)
    async def suicidal(items: list[int]) -> list[int]:
        calls.append(len(items))
        running.set()
        await go_on.wait()
        raise asyncio.CancelledError

    first, second = await app.enqueue_many([suicidal.call(number) for number in range(2)])
    async with at_work(app) as worker:
        await running.wait()
        held = worker._held.all()
        await first.cancel()
        await until_async(lambda: held[0].context.cancelled, 10, "the worker to hear of it")
        go_on.set()

        async def over() -> bool:
            return await second.status() is Status.FAILED

        await until_async(over, 10, "the other one's failure")
    job = await second.job()
    assert job.error is not None
    assert (job.error.code, calls) == ("CancelledError", [2])


@pytest.mark.slow
async def test_a_batch_that_lost_all_its_leases_is_cancelled(app: Unstuck) -> None:
    """A handler whose jobs are all cancelled, or run elsewhere, is cancelled: its slot is free again."""
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.batch(2, lease=60.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return [None] * len(items)

    handles = await app.enqueue_many([work.call(n) for n in range(2)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 20)
    for handle in handles:
        await handle.cancel()
    try:
        await asyncio.wait_for(ended.wait(), 20)
    finally:
        worker.stop(at_once=True)
        await running


@pytest.mark.slow
async def test_one_by_one_leaves_out_jobs_whose_lease_is_lost(app: Unstuck) -> None:
    """A batch that failed as a whole is run one by one, without the jobs that were cancelled meanwhile."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    alone: list[int] = []

    @app.batch(3, lease=60.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        if len(items) > 1:
            begun.set()
            await go_on.wait()
            raise Permanent("one of them is bad")
        alone.extend(items)
        return [None]

    handles = await app.enqueue_many([work.call(n) for n in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 20)
    await handles[1].cancel()
    await worker._heartbeat.confirm()  # a beat more: the worker knows
    go_on.set()
    await until_async(lambda: _true(len(alone) >= 2), 20, "the others to run")
    await asyncio.sleep(0.2)
    worker.stop()
    await running
    assert alone == [0, 2]


async def _true(value: bool) -> bool:
    return value


@pytest.mark.slow
async def test_one_by_one_needs_tokens_too(app: Unstuck) -> None:
    """Two requests a minute are two, also when a batch that fails for good is run one by one."""
    calls: list[int] = []

    @app.batch(5, rate=Rate(2, per=60))
    async def work(items: list[int]) -> list[None]:
        calls.append(len(items))
        if len(items) > 1:
            raise Permanent("one of them is bad")
        return [None]

    await app.enqueue_many([work.call(n) for n in range(5)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1.0)
    worker.stop(at_once=True)
    await running
    assert len(calls) <= 2
