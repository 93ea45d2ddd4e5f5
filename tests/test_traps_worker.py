"""What an adversarial reader found in the ways a worker stumbles and ends: each stays closed."""

import asyncio
import logging
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from unstuck import StoreUnavailable, Unstuck, Worker, kin
from unstuck.errors import StoreDamaged
from unstuck.reaper import Reaper
from unstuck.store import Share
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def ends(running: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([running], timeout=seconds)
    return bool(done)


async def test_a_worker_ends_although_handlers_block_the_default_executor(app: Unstuck) -> None:
    """The pulse is left through asyncio.to_thread(join): behind threads that handlers have blocked, for ever.

    Nor are these threads counted as deaf, so the command does not leave with os._exit() either.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, free = asyncio.Event(), threading.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.to_thread(free.wait)

    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    worker.stop(at_once=True)
    try:
        assert await ends(running, 6)
    finally:
        free.set()
        await running


class Broken:
    """A store that stops answering, or turns out to be damaged, when it is told so."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.error: Exception | None = None
        self.settles = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, outcomes: Any) -> Any:
        self.settles += 1
        if self.error:
            raise self.error
        return await self._store.settle(outcomes)


async def test_a_damaged_store_is_not_asked_all_the_time_while_jobs_run(app: Unstuck) -> None:
    """_drain() sends the outbox again and again without a pause while anything runs: a busy loop for the grace."""
    long, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def job(n: int) -> None:
        if n:
            long.set()
            await go_on.wait()
        else:
            await long.wait()
            broken.error = StoreDamaged("the store is damaged")

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await app.enqueue_many([job.call(0), job.call(1)])
    worker = Worker(app, grace=1.0)
    await worker.run()
    go_on.set()
    app._stores[loop][app.url] = broken._store
    assert broken.settles < 20


async def test_the_last_try_of_a_worker_that_ends_at_once_is_no_busy_loop(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    """Told to end at once, stumble() waits no more: for ten seconds the store is asked as fast as it fails."""
    begun = asyncio.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.sleep(60)

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    broken.error = StoreUnavailable("away")
    caplog.set_level(logging.CRITICAL)
    worker.stop(at_once=True)
    await asyncio.sleep(1.0)
    asked = broken.settles
    broken.error = None
    await running
    app._stores[loop][app.url] = broken._store
    assert asked < 50


async def test_a_worker_is_buried_again_if_that_failed(harness: SQLiteHarness) -> None:
    """bury() notes a dead worker before its leases are ended: if the store fails just then, nobody tries again."""
    from unstuck.model import NewJob
    from unstuck.model import Worker as Facts

    with subprocess.Popen(["sleep", "60"]) as process:
        ground = kin._ground()
        identity = f"{ground}/{process.pid}/{kin._stat(process.pid)[1]}"
        process.kill()
    await harness.store.heartbeat(Facts(id="dead", host="here", pid=process.pid, identity=identity), [])
    await harness.store.enqueue([NewJob(queue="default", task="t", id="1")])
    await harness.store.lease({"default": Share(600.0, 1)}, 1, "dead")

    class Once:
        failed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(harness.store, name)

        async def reclaim(self, *args: Any, **kwargs: Any) -> Any:
            if not self.failed:
                self.failed = True
                raise StoreUnavailable("away for a moment")
            return await harness.store.reclaim(*args, **kwargs)

    reaper = Reaper(Once())
    await reaper.begin()
    await reaper._try()
    [counts] = await harness.store.count()
    assert counts.processing == 0


async def test_a_worker_can_be_asked_for_its_health_before_it_runs(app: Unstuck) -> None:
    """get_health_status() is public and raises AttributeError until run() has made the slots."""

    @app.task
    async def job() -> None: ...

    assert Worker(app).get_health_status().status == "HEALTHY"


async def test_a_deaf_coroutine_keeps_its_slot(app: Unstuck) -> None:
    """A thread whose time is up keeps its place until it ends; a coroutine that does not listen loses it.

    So one slot runs any number of them at a time, and nobody knows.
    """
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

    await app.enqueue_many([deaf.call() for _ in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5.5)
    over.set()
    worker.stop(at_once=True)
    await running
    assert most == 1
