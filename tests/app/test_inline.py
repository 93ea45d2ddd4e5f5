"""Jobs inside a test: what is due runs, what comes due soon if asked for, and nobody waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from unstuck import Rate, RateLimited, Retry, Snooze, Status, Transient, Unstuck, current_job
from unstuck.testing import inline

pytestmark = pytest.mark.anyio


def one() -> int:
    return 1


@asynccontextmanager
async def at_once() -> AsyncIterator[None]:
    """Whatever happens in the block waits for no time that it only speaks of."""
    async with asyncio.timeout(30):
        yield


async def test_inline_runs_retries_and_delayed_jobs_ahead_of_their_time(app: Unstuck) -> None:
    @app.task(retry=Retry(attempts=3, backoff=(20, 30)))
    async def third_time() -> int:
        if current_job().attempt < 3:
            raise Transient("not yet")
        return current_job().attempt

    @app.task
    async def sleepy() -> None:
        raise Snooze(25)

    async with inline(app) as jobs:
        retried = await third_time.enqueue()
        delayed = await app.task(one).options(delay=timedelta(minutes=5)).enqueue()
        await sleepy.enqueue()

        await jobs.run()
        assert (await retried.status(), (await retried.job()).attempts) == (Status.PENDING, 1)

        await jobs.run(ahead=80)  # more than both waits, each lengthened by a fifth at most
        assert (await retried.result(timeout=0), await delayed.status()) == (3, Status.PENDING)

        await jobs.run(ahead=300)
        assert await delayed.result(timeout=0) == 1


async def test_inline_leaves_alone_what_is_held_back(app: Unstuck) -> None:
    async with inline(app) as jobs:
        handle = await app.task(one).enqueue()
        await jobs.jobs.pause("default", "for now")

        await jobs.run(ahead=3600)

        assert await handle.status() is Status.PENDING


async def test_inline_waits_neither_for_a_rate_nor_for_a_refusal(app: Unstuck) -> None:
    runs: list[str] = []

    @app.task(queue="rated", rate=Rate(20, per=60))
    async def rated(n: int) -> None:
        runs.append("rated")

    @app.task(queue="refused")
    async def refused() -> None:
        runs.append("refused")
        if runs.count("refused") == 1:
            raise RateLimited("slow down", delay=60)

    async with inline(app) as jobs, at_once():
        await app.enqueue_many([rated.call(n) for n in range(45)])
        await refused.enqueue()

        await jobs.run()
        assert (runs.count("rated"), runs.count("refused")) == (20, 1)

        await jobs.run(ahead=50)
        assert (runs.count("rated"), runs.count("refused")) == (20, 1)

        await jobs.run(ahead=60)
        assert (runs.count("rated"), runs.count("refused")) == (40, 2)

        await jobs.run(ahead=60)
        assert runs.count("rated") == 45


async def test_what_inline_waits_for_too_long_expires(app: Unstuck) -> None:
    task = app.task(rate=Rate(1, per=60), expires=90)(one)

    async with inline(app) as jobs:
        handles = [await task.enqueue() for _ in range(3)]
        await jobs.run(ahead=600)

        assert [await handle.status() for handle in handles] == ["completed", "completed", "failed"]
        assert (await handles[2].job()).expired


async def test_inline_goes_on_when_a_closed_bucket_opens(app: Unstuck) -> None:
    runs: list[int] = []

    @app.task(rate=Rate(20, per=1))
    async def work(n: int) -> None:
        runs.append(n)
        if len(runs) == 1:
            raise RateLimited("slow down", delay=300)

    async with inline(app) as jobs, at_once():
        await work.enqueue(1)
        await jobs.run()
        await work.enqueue(2)

        await jobs.run(ahead=200)
        assert runs == [1]

        await jobs.run(ahead=300)
        assert sorted(runs) == [1, 1, 2]


@pytest.mark.parametrize("ahead", [0, 1.5])
@pytest.mark.parametrize("word", [RateLimited("slow down", delay=1), Snooze(0)])
async def test_inline_has_an_end_where_a_job_has_none(app: Unstuck, word: Exception, ahead: float) -> None:
    @app.lifespan
    @asynccontextmanager
    async def slow_to_leave() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0.2)  # so that the job is due again whenever a worker has ended

    @app.task
    async def never() -> None:
        raise word

    async with inline(app) as jobs, at_once():
        handle = await never.enqueue()
        await jobs.run(ahead=ahead)

        assert ((await handle.job()).status, (await handle.job()).attempts) == (Status.PENDING, 0)


async def test_inline_does_not_fire_schedules_for_time_that_it_skips(app: Unstuck) -> None:
    runs: list[int] = []

    @app.task
    async def daily() -> None:
        runs.append(1)

    far = (datetime.now(UTC).hour + 12) % 24  # it must not come while this test runs
    app.schedule("daily", daily.call(), cron=f"0 {far} * * *")
    async with inline(app) as jobs, at_once():
        await jobs.run()
        await app.task(one).options(delay=timedelta(days=1)).enqueue()
        await jobs.run(ahead=timedelta(days=2))

    assert runs == []
