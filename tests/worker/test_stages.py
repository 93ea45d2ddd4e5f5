"""Stages and progress: what a handler says of its job reaches the store soon, and bounds its lease."""

import asyncio
import time
from itertools import pairwise

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work

from unstuck import StoreUnavailable, Unstuck, current_job
from unstuck.app.handle import Handle
from unstuck.contrib.pipeline import pipeline
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.text.durations import in_seconds

pytestmark = pytest.mark.anyio
SOON = 1.0


async def lease_left(handle: Handle[None]) -> float:
    job = await handle.job()
    assert job.lease_until is not None
    return job.lease_until.timestamp() - time.time()


@pytest.mark.accepts("REAP-030", "REAP-031")
async def test_the_lease_follows_the_stage_within_a_second(app: Unstuck) -> None:
    said: asyncio.Queue[tuple[str, float | None]] = asyncio.Queue()

    @app.task(lease=20.0, heartbeat=5.0, stages={"asr": 600.0, "clip": 60.0})
    async def transcode() -> None:
        while (word := await said.get())[0]:
            current_job().stage(word[0], expected=word[1])

    handle = await transcode.enqueue()
    async with at_work(app):

        async def processing() -> bool:
            return (await handle.job()).owner is not None

        await until_async(processing, 10, "the job to run")
        assert 10.0 < await lease_left(handle) <= 20.0
        for stage, expected, lease in [
            ("asr", None, 600.0),
            ("clip", None, 60.0),
            ("clip", 1000.0, 1000.0),  # the handler knows better
            ("clip", 30.0, 60.0),  # but it cannot ask for less
            ("unheard of", None, 20.0),
        ]:
            said.put_nowait((stage, expected))

            async def reached(stage: str = stage, lease: float = lease) -> bool:
                return (await handle.job()).stage == stage and lease - 3 < await lease_left(handle) <= lease

            await until_async(reached, SOON, f"a lease of {lease} s in stage {stage}")
        said.put_nowait(("", None))
        await handle.result(10)


@pytest.mark.accepts("REAP-034")
async def test_a_job_that_falls_silent_in_a_long_stage_is_not_reaped_before_its_end(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    go_on = asyncio.Event()

    @app.task(lease=20.0, heartbeat=5.0, stages={"burnin": 900.0})
    async def render() -> None:
        current_job().stage("burnin")
        await go_on.wait()

    handle = await render.enqueue()
    book = await spied(app)
    async with at_work(app, recovery=0):

        async def long() -> bool:
            return (await handle.job()).stage == "burnin"

        await until_async(long, 10, "the long stage")
        book.fails["heartbeat"] = StoreUnavailable("no way to the store")
        await harness.age(800)
        assert await Reaper(harness.store).recover() == []

        await harness.age(101)
        [recovered] = await Reaper(harness.store).recover()
        assert recovered.lease.id == handle.id
        go_on.set()
        book.fails.clear()


@pytest.mark.accepts("REAP-040", "REAP-041")
async def test_a_running_job_beats_at_the_interval_of_its_queue(app: Unstuck) -> None:
    assert 10.0 <= in_seconds(pipeline({})["heartbeat"]) <= 15.0
    beats: set[float] = set()
    looks: list[float] = []

    @app.task(lease=60.0, heartbeat=0.3)
    async def work() -> None:
        while len(beats) < 8:
            await asyncio.sleep(0.02)
            job = await handle.job()
            looks.append(time.monotonic())
            if job.heartbeat_at is not None and job.lease_until is not None:
                beats.add(job.heartbeat_at.timestamp())
                assert (job.lease_until - job.heartbeat_at).total_seconds() == pytest.approx(60.0, abs=0.01)

    handle = await work.enqueue()
    async with at_work(app):
        await handle.result(20)

    pauses = [after - before for before, after in pairwise(sorted(beats)[1:])]
    blind = max(after - before for before, after in pairwise(looks))  # while the machine had others to run
    assert min(pauses) >= 0.25
    assert max(pauses) < 0.3 + 0.5 + blind


async def test_progress_is_in_the_store_within_a_second_although_beats_are_rare(app: Unstuck) -> None:
    go_on = asyncio.Event()

    @app.task(lease=600.0, heartbeat=60.0)
    async def work() -> None:
        for step in (1, 2, 3):
            current_job().progress({"step": step})
            await go_on.wait()
            go_on.clear()

    handle = await work.enqueue()
    async with at_work(app):
        await until_async(lambda: _progress(handle, 1), 10, "the first word")
        for step in (2, 3):
            go_on.set()
            await until_async(lambda step=step: _progress(handle, step), SOON, "the next word")  # type: ignore[misc]
        go_on.set()
        await handle.result(10)


@pytest.mark.parametrize("word", ["progress", "stage"])
async def test_a_handler_that_talks_all_the_time_does_not_flood_the_store(app: Unstuck, word: str) -> None:
    count = 0

    @app.task(lease=600.0, heartbeat=60.0)
    async def chatty() -> None:
        nonlocal count
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            count += 1
            if word == "progress":
                current_job().progress(count)
            else:
                current_job().stage(f"stage {count}")
            await asyncio.sleep(0)

    handle = await chatty.enqueue()
    book = await spied(app)
    async with at_work(app):
        await handle.result(10)
        assert len(book.of("heartbeat")) < 25
    assert count > 1000


async def _progress(handle: Handle[None], step: int) -> bool:
    return bool((await handle.job()).progress == {"step": step})
