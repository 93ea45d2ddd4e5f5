"""What a worker makes of a job whose handler failed: tried again or not, how soon, and what is written down."""

import asyncio
import contextlib
import socket
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.waiting import until_async
from support.work import burst

from unstuck import Category, Filter, Job, Jobs, Retry, Status, Unstuck, Worker, current_job
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts

pytestmark = pytest.mark.anyio


class Entity(msgspec.Struct):
    name: str


def read_corrupt(folder: Path) -> None:
    """Read a database that is damaged."""
    file = folder / "damaged.db"
    file.write_bytes(b"no database, but as long as one " * 64)
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("SELECT * FROM entities")


async def ask_in_vain() -> None:
    """Ask a server of this network that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reader, writer = await asyncio.open_connection(*silent.getsockname())
        try:
            await asyncio.wait_for(reader.readline(), 0.02)
        finally:
            writer.close()


@pytest.mark.accepts("EMB-060", "EMB-030", "EMB-034")
async def test_the_class_of_an_error_decides_and_can_be_asked_for(
    app: Unstuck, harness: SQLiteHarness, tmp_path: Path
) -> None:
    @app.task(queue="network", retry=Retry(attempts=2, backoff=(20.0,)))  # in a later burst than the first
    async def passing() -> None:
        await ask_in_vain()

    @app.task(queue="entities")
    async def lasting() -> None:
        msgspec.convert({"name": None}, Entity)

    @app.task(queue="damaged")
    async def grave() -> None:
        read_corrupt(tmp_path)

    handles = [await task.enqueue() for task in (passing, lasting, grave)]
    for task in (passing, lasting, grave):  # one worker each: the last halts
        await burst_of(app, task.queue)
    assert [await handle.status() for handle in handles] == [Status.PENDING, Status.FAILED, Status.FAILED]
    halted = [(await counts(harness.store, queue)).halted for queue in ("network", "entities", "damaged")]
    assert [bool(why) for why in halted] == [False, False, True]
    await harness.age(30)
    await burst_of(app, "network")

    for category, handle in zip(Category, handles, strict=True):
        [job] = (await Jobs(harness.store).find(Filter(status=Status.FAILED, category=category))).jobs
        assert job.id == handle.id
        assert job.error is not None
        assert job.error.category is category
    assert [str(category) for category in Category] == ["TRANSIENT", "PERMANENT", "CRITICAL"]


@pytest.mark.accepts("EMB-061", "EMB-062", "EMB-063")
async def test_a_network_timeout_is_tried_again_after_one_two_and_four_seconds(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task(retry=4)
    async def embed() -> str:
        if current_job().attempt < 4:
            await ask_in_vain()
        return "at last"

    handle, seen = await embed.enqueue(), []
    for _ in range(3):
        assert await Worker(app).process_jobs(1) == 1
        job, now = await handle.job(), (await harness.store.clock()).now
        assert job.error is not None
        assert job.error.at is not None
        seen.append((job.status, job.attempts, job.error.category))
        backoff = timedelta(seconds=2 ** (job.attempts - 1))
        assert job.error.at + backoff <= job.run_at + timedelta(seconds=0.2)
        assert job.run_at <= now + 1.2 * backoff  # with its jitter; it was written before now
        await harness.age(10)

    assert seen == [(Status.PENDING, attempt, Category.TRANSIENT) for attempt in (1, 2, 3)]
    await burst(app)
    assert await handle.result() == "at last"


@pytest.mark.accepts("EMB-035", "EMB-036", "EMB-148")
async def test_after_two_transient_failures_the_third_is_final_and_nothing_follows(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    tries: list[int] = []

    @app.task  # three attempts are the default
    async def embed() -> None:
        tries.append(current_job().attempt)
        raise ConnectionResetError("gone")

    handle, seen = await embed.enqueue(), []
    for _ in range(5):
        await burst(app)
        seen.append(await handle.status())
        await harness.age(10_000)
        assert await Reaper(harness.store).recover() == []

    assert seen == [Status.PENDING] * 2 + [Status.FAILED] * 3
    assert tries == [1, 2, 3]


@pytest.mark.accepts("EMB-064", "EMB-065")
async def test_an_invalid_entity_fails_its_job_at_once_and_for_good(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    tries: list[int] = []

    @app.task(retry=5)
    async def embed() -> None:
        tries.append(current_job().attempt)
        msgspec.convert({"name": None}, Entity)

    handle = await embed.enqueue()
    for _ in range(2):
        await burst(app)
        job = await handle.job()
        assert job.error is not None
        assert (job.status, job.error.category) == (Status.FAILED, Category.PERMANENT)
        await harness.age(10_000)

    assert tries == [1]


@pytest.mark.accepts("EMB-031", "EMB-032", "EMB-033")
async def test_a_failed_job_keeps_the_message_the_stack_and_the_count_of_its_last_error(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task(retry=2)
    async def embed() -> None:
        raise ConnectionResetError(f"gone at try {current_job().attempt}")

    handle = await embed.enqueue()
    await burst(app)
    await harness.age(10)
    await burst(app)

    job = await handle.job()
    assert job.status is Status.FAILED
    assert job.error is not None
    assert (job.error.message, job.error.attempt) == ("gone at try 2", 2)
    assert "Traceback" in job.error.stack
    assert "in embed" in job.error.stack
    assert "ConnectionResetError: gone at try 2" in job.error.stack


async def test_a_burst_does_not_overlook_a_retry_that_came_due_while_it_asked_for_jobs(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = await app.store(), asyncio.Event()
    lease, calls = type(store).lease, 0

    async def late(*args: Any) -> list[Job]:
        nonlocal calls
        calls += 1
        first, jobs = calls == 1, await lease(*args)
        if not first:
            asked.set()
            await until_async(lambda: not worker._held, 10, "the failure to be written")
        return jobs

    @app.task(retry=Retry(attempts=2, backoff=(0.0,)))
    async def embed() -> None:
        await asked.wait()
        raise ConnectionResetError("gone")

    monkeypatch.setattr(type(store), "lease", late)
    handle = await embed.enqueue()
    worker = Worker(app, burst=True)
    await worker.run()

    assert ((await handle.job()).status, (await handle.job()).attempts) == (Status.FAILED, 2)


async def burst_of(app: Unstuck, queue: str) -> None:
    await Worker(app, queues=[queue], burst=True).run()
