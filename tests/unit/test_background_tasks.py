"""Background tasks are ended for certain, also those that drop a cancellation, as calls of redis-py do on Python 3.11."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Self, cast

import pytest
from support.redis import Redis
from support.spy import Book, Spied

from unstuck import Unstuck, Worker
from unstuck.background import end, happens
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness, SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


class Dropping(Spied):
    """A store in which calls of one operation hang, and drop so many cancellations each before they return."""

    def __init__(self, store: Store, operation: str, drops: int) -> None:
        super().__init__(store, Book())
        self._operation, self._drops = operation, drops
        self.hanging = asyncio.Event()

    def twin(self) -> Self:
        return cast(Self, self._store.twin())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = super().__getattr__(name)
        if name != self._operation:
            return method

        async def ask(*args: Any, **kwargs: Any) -> Any:
            self.hanging.set()
            for _ in range(self._drops):
                await drop()
            return await method(*args, **kwargs)

        return ask


async def drop() -> None:
    """Until it is cancelled, which goes no further."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def stubborn(drops: int) -> None:
    for _ in range(drops):
        await drop()
    await asyncio.Event().wait()


async def ended(task: asyncio.Task[None]) -> None:
    """Until it has, by itself."""
    done, _ = await asyncio.wait([task], timeout=20)
    await end([task])
    assert done, "it had not ended after 20 s"
    await task


async def test_a_task_that_drops_cancellations_is_cancelled_until_it_ends() -> None:
    tasks = [asyncio.create_task(stubborn(drops)) for drops in range(4)]
    await asyncio.sleep(0)

    assert await end([*tasks, None]) == 0
    assert all(task.cancelled() for task in tasks)


async def test_a_task_that_never_ends_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.create_task(stubborn(1000))
    await asyncio.sleep(0)

    assert await end([task], seconds=0.3) == 1
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "stubborn was cancelled and has not ended within 0.3 s: going on without it"
    ]
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def test_a_cancellation_at_the_moment_of_the_event_counts() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(happens(event, 60.0))
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()

    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert await happens(event, 0.0)
    event.clear()
    assert not await happens(event, 0.01)


@pytest.fixture
async def scheduled(harness: SQLiteHarness) -> AsyncIterator[Unstuck]:
    async with nightly(harness.url) as app:
        yield app


def nightly(url: str) -> Unstuck:
    app = Unstuck(url)

    @app.task
    async def tidy() -> None: ...

    app.schedule("nightly", tidy.call(), every=3600)
    return app


@pytest.mark.parametrize("operation", ["tick", "wait"])
async def test_a_worker_ends_although_a_call_drops_its_cancellation(
    scheduled: Unstuck, operation: str
) -> None:
    store = Dropping(await scheduled.store(), operation, drops=2)
    scheduled._stores[asyncio.get_running_loop()][scheduled.url] = cast(Store, store)
    worker = Worker(scheduled)
    running = asyncio.create_task(worker.run())
    await store.hanging.wait()
    worker.stop()

    await ended(running)
    assert worker.stuck == 0


async def test_a_reaper_ends_although_a_call_drops_its_cancellation(harness: SQLiteHarness) -> None:
    store = Dropping(harness.store, "reclaim", drops=0)
    reaper = Reaper(cast(Store, store), interval=0.05)
    await reaper.__aenter__()
    store.hanging.clear()
    store._drops = 2
    await store.hanging.wait()

    await ended(asyncio.create_task(reaper.__aexit__()))


@pytest.fixture
async def on_redis(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def test_workers_on_redis_that_are_stopped_while_they_start_end(on_redis: RedisHarness) -> None:
    """With a schedule, which is looked at first when the worker already ends."""
    async with nightly(on_redis.url) as app:
        for _ in range(40):
            worker = Worker(app)
            worker.stop()
            await ended(asyncio.create_task(worker.run()))
            assert worker.stuck == 0
