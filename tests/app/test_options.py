"""Options of one call: its queue, retries and timeout, instead of those that the task declares."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from support.refusal import refusal
from support.work import burst

from unstuck import Exponential, Retry, Status, Unstuck, Worker

pytestmark = pytest.mark.anyio
DECLARED = Retry(4, backoff=(5.0,))


def where() -> str:
    return "here"


async def doze() -> None:
    await asyncio.sleep(60)


async def test_a_job_has_its_own_queue_retries_and_timeout_and_the_next_one_has_not(app: Unstuck) -> None:
    app.queue("slow", max_crashes=7, lapse_backoff=(30.0,))
    task = app.task(queue="fast", retry=DECLARED, timeout=9)(where)

    own = await (await task.options(queue="slow", retry=2, timeout=timedelta(seconds=1)).enqueue()).job()
    retry = Retry(6, backoff=Exponential(base=1, factor=10, longest=60))
    waits = await (await task.options(retry=retry, priority=3).enqueue()).job()
    usual = await (await task.enqueue()).job()

    assert (own.queue, own.max_attempts, own.backoff, own.timeout) == ("slow", 2, (1.0, 2.0, 4.0), 1.0)
    assert (own.max_crashes, own.lapse_backoff) == (7, (30.0,))  # as the reapers of that queue have to know
    assert (waits.queue, waits.max_attempts, waits.backoff, waits.timeout) == (
        "fast",
        6,
        (1.0, 10.0, 60.0),
        9.0,
    )
    assert (usual.queue, usual.max_attempts, usual.backoff, usual.timeout) == ("fast", 4, (5.0,), 9.0)
    assert (usual.max_crashes, usual.lapse_backoff) == (None, ())


async def test_a_worker_of_the_other_queue_runs_the_job(app: Unstuck) -> None:
    app.queue("urgent")
    task = app.task(queue="usual")(where)
    handles = [await task.enqueue(), await task.options(queue="urgent").enqueue()]

    await Worker(app, queues=["urgent"], burst=True).run()

    assert [await handle.status() for handle in handles] == [Status.PENDING, Status.COMPLETED]


async def test_isolated_jobs_and_batches_run_in_another_queue_too(app: Unstuck) -> None:
    app.queue("urgent")
    calls: list[int] = []

    @app.batch(10, queue="texts")
    async def embed(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        return texts

    alone = await app.task(queue="files", isolate=True)(where).options(queue="urgent").enqueue()
    texts = await app.enqueue_many([embed.options(queue="urgent").call(f"{n}") for n in range(5)])
    await Worker(app, queues=["urgent"], burst=True).run()

    assert await alone.result(timeout=0) == "here"
    assert [await text.result(timeout=0) for text in texts] == ["0", "1", "2", "3", "4"]
    assert sum(calls) == 5


async def test_the_timeout_and_the_attempts_of_a_call_are_kept(app: Unstuck) -> None:
    handle = await app.task(timeout=60)(doze).options(timeout=0.05, retry=1).enqueue()

    await burst(app)

    job = await handle.job()
    assert (job.status, job.error and job.error.code) == (Status.FAILED, "timeout")


async def test_a_key_is_one_of_the_queue_that_the_job_is_in(app: Unstuck) -> None:
    app.queue("other")
    task = app.task(where)

    first, second = [
        await one.enqueue() for one in (task.options(key="k"), task.options(key="k", queue="other"))
    ]

    assert (first.created, second.created, second.queue) == (True, True, "other")
    assert not (await task.options(key="k", queue="other").enqueue()).created


async def test_options_begin_from_what_the_task_declares(app: Unstuck) -> None:
    app.queue("slow")
    task = app.task(queue="fast", retry=DECLARED)(where)

    job = task.options(queue="slow", retry=9, timeout=5, priority=9).options(delay=60).call().job

    assert (job.queue, job.max_attempts, job.timeout, job.priority) == ("fast", 4, None, 0)


async def test_what_cannot_be_is_refused_where_it_is_given(app: Unstuck) -> None:
    app.queue("slow")
    task: Any = app.task(queue="fast")(where)

    assert refusal(lambda: task.options(queue="slwo")) == (
        "no task of this app uses queue 'slwo': it has fast, slow; one without a task of its own is declared by "
        "app.queue('slwo')"
    )
    assert (
        refusal(lambda: task.options(timeout=0))
        == "timeout is 0: it must be a number from 0.05 to 604800 (seconds)"
    )
    assert refusal(lambda: task.options(retry="3")).startswith(
        "retry is '3': it must be a number of attempts"
    )
    assert refusal(lambda: task.options(retry=Retry(never=(ValueError,)))).startswith(
        "on and never of a Retry are"
    )
