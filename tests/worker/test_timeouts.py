"""Handlers that take too long, say nothing for too long, or want to be run later."""

import asyncio
import math
import re
import threading
import time
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Category, JobFailed, RateLimited, Retry, Snooze, Status, Unstuck, Worker, current_job
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import NewJob
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import look
from unstuck.worker import runners

pytestmark = pytest.mark.anyio


async def test_an_attempt_that_takes_too_long_is_cancelled_and_retried(app: Unstuck) -> None:
    stopped: list[int] = []

    @app.task(timeout=0.2, retry=Retry(attempts=2, backoff=(0.0,)))
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(current_job().attempt)

    @app.task(timeout=0.2)
    async def quick() -> str:
        return "in time"

    handle, good = await slow.enqueue(), await quick.enqueue()
    await burst(app)

    job = await handle.job()
    assert (job.status, job.attempts, stopped) == (Status.FAILED, 2, [1, 2])
    assert job.error is not None
    assert (job.error.code, job.error.category) == ("timeout", "TRANSIENT")
    assert "0.2 s" in job.error.message
    assert await good.result() == "in time"


async def test_a_thread_that_takes_too_long_is_reported_at_once_and_keeps_its_place(app: Unstuck) -> None:
    release = threading.Event()
    running = most = starts = 0
    told: list[bool] = []

    def hold_on() -> None:
        nonlocal running, most, starts
        running += 1
        starts += 1
        most = max(most, running)
        release.wait(20)
        told.append(current_job().cancelled)
        running -= 1

    first = await app.task(name="stubborn", timeout=0.2, retry=1)(hold_on).enqueue()
    second = await app.task(name="patient", retry=1)(hold_on).enqueue()
    async with at_work(app, concurrency=1):

        async def failed() -> bool:
            return await first.status() is Status.FAILED

        await until_async(failed, 10, "the timeout to be written while the thread still runs")
        await until_async(lambda: running == 1, 10, "the thread, which may be late itself")
        await asyncio.sleep(0.3)  # time enough to start the second one wrongly
        assert starts == 1
        release.set()

        async def over() -> bool:
            return await second.status() is Status.COMPLETED

        await until_async(over, 10, "the second job to have its turn")
    assert most == 1
    assert told == [True, False]  # a thread can see that nobody waits for it


async def test_a_coroutine_that_ignores_its_timeout_keeps_its_place(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "CANCEL_PATIENCE", 0.1)
    release, turn = asyncio.Event(), asyncio.Event()

    @app.task(timeout=0.1, retry=1)
    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @app.task(queue="default")
    async def other() -> str:
        turn.set()
        return "my turn"

    first = await deaf.enqueue()
    second = await other.enqueue()
    async with at_work(app, concurrency=1):

        async def failed() -> bool:
            return await first.status() is Status.FAILED

        await until_async(failed, 10, "the timeout to be written")
        await asyncio.sleep(0.2)  # time enough to start the second one wrongly
        assert not turn.is_set()
        release.set()
        assert await second.result(10) == "my turn"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_may_take_long_but_not_without_a_word(app: Unstuck, kind: str) -> None:
    end = threading.Event()

    async def on_loop(words: int) -> None:
        for word in range(words):
            current_job().progress(word)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0 if words else 60)

    def in_thread(words: int) -> None:
        for word in range(words):
            current_job().progress(word)
            end.wait(0.1)
        end.wait(0 if words else 20)

    work = app.task(name="work", stall=1.5, retry=1)(on_loop if kind == "async" else in_thread)
    talking, silent = await work.enqueue(20), await work.enqueue(0)
    running = asyncio.create_task(burst(app))
    await talking.result(10)

    async def stalled() -> bool:
        return await silent.status() is Status.FAILED

    await until_async(stalled, 10, "the silent one to be given up")
    end.set()
    await running
    job = await silent.job()
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("stalled", "the handler reported no progress for 1.5 s")


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(60, 60.0), (366 * 86400, 366 * 86400.0)],
)
async def test_a_snoozed_job_comes_back_later_unspent(app: Unstuck, asked: Any, seconds: float) -> None:
    runs: list[float] = []

    @app.task(retry=1)
    async def later() -> str:
        runs.append(time.time())
        if len(runs) == 1:
            raise Snooze(asked)
        return "now"

    handle = await later.enqueue()
    await burst(app)

    job = await handle.job()
    assert (job.status, job.attempts, len(runs)) == (Status.PENDING, 0, 1)
    assert job.run_at.timestamp() - runs[0] == pytest.approx(seconds, abs=5.0)


@pytest.mark.parametrize("asked", [0, -5, timedelta(days=-1)])
async def test_a_snooze_that_is_over_already_does_not_keep_the_worker_busy(app: Unstuck, asked: Any) -> None:
    runs: list[float] = []

    @app.task
    async def later() -> str:
        runs.append(time.time())
        if len(runs) == 1:
            raise Snooze(asked)
        return "now"

    async with at_work(app):
        assert await (await later.enqueue()).result(timeout=20) == "now"

    assert runs[1] - runs[0] > 0.09


@pytest.mark.parametrize("asked", [math.nan, 10**12, math.inf, "1h", True, [1]])
@pytest.mark.parametrize("limited", [False, True])
async def test_a_length_of_time_that_cannot_be_fails_its_job_where_it_is_given(
    app: Unstuck, limited: bool, asked: Any
) -> None:
    @app.task
    async def later() -> None:
        raise RateLimited("slow down", delay=asked) if limited else Snooze(asked)

    handle = await later.enqueue()
    await burst(app)

    what = "delay of RateLimited" if limited else "Snooze"
    with pytest.raises(JobFailed, match=f"{what} is .*: it must be a number of seconds, 31622400") as caught:
        await handle.result(timeout=0)
    assert caught.value.failure.category is Category.PERMANENT


@pytest.mark.parametrize("task", ["os.system", "builtins.exec", "__import__"])
async def test_a_task_that_nobody_registered_is_left_in_its_queue_and_nothing_is_imported(
    app: Unstuck, harness: SQLiteHarness, task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def known() -> None: ...

    payload = {"command": f"touch {tmp_path}/done", "name": "antigravity"}
    [answer] = await harness.store.enqueue([NewJob(queue="default", task=task, id=new_id(), payload=payload)])
    await burst(app)

    job = await look(harness.store, answer.ref)
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    [event] = await harness.store.events(job=answer.ref)
    assert event.data["details"]["why"] == f"task {task!r} is unknown to this worker"
    [line] = [record.getMessage() for record in caplog.records if "not known" in record.message]
    assert line.startswith(
        f"task {task} is not known here: deploy a worker of queue default whose app has it"
    )
    again = r"given back unspent for \d+ s, and will be tried again later and later, every 300 s in the end"
    assert re.search(again, line)
    assert not (tmp_path / "done").exists()


async def test_an_unknown_task_is_looked_at_after_twice_the_time_again_and_again(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task
    async def known() -> None: ...

    job = NewJob(queue="default", task="newer", id=new_id(), payload={})
    [answer] = await harness.store.enqueue([job])
    book = await spied(app)
    waits: list[float] = []
    for _ in range(12):
        await burst(app)
        [outcome] = book.of("settle")[-1].args[0]
        waits.append(outcome.delay)
        found = await look(harness.store, answer.ref)
        assert found.started_at is not None
        waited = (found.started_at - found.created_at).total_seconds()
        assert outcome.delay == pytest.approx(min(max(waited, 1.0), 300.0), abs=0.002)
        assert (found.run_at - found.started_at).total_seconds() >= outcome.delay - 0.002
        await harness.age(outcome.delay + 0.1)

    assert waits[-1] == 300.0
    for before, after in pairwise(waits[1:]):
        assert after >= min(2 * before, 300.0)
    assert 5 < waits.index(300.0) < 11


@pytest.mark.slow
async def test_a_deaf_coroutine_keeps_its_slot(app: Unstuck, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that ignores its timeout keeps its slot until it ends, as a thread does: a slot runs one job at a time."""
    monkeypatch.setattr(runners, "CANCEL_PATIENCE", 0.1)
    alive, most = 0, 0
    over = asyncio.Event()

    @app.task(timeout=0.1, retry=1)
    async def deaf() -> None:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        alive -= 1

    handles = await app.enqueue_many([deaf.call() for _ in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())

    async def failed() -> bool:
        return Status.FAILED in [await handle.status() for handle in handles]

    await until_async(failed, 20, "the worker to give up on one")
    await asyncio.sleep(0.5)  # time enough to start the next one wrongly
    over.set()
    worker.stop(at_once=True)
    await running
    assert most == 1
