"""Things that should not be asked, said or returned, and are answered without harm."""

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.spy import Book, Spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Filter, Jobs, PayloadError, Permanent, Status, Unstuck, current_job
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Category, Lease
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.outcome import Settled, completed, failed, released
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, states, trouble

pytestmark = pytest.mark.anyio


async def test_of_own_foreign_unknown_and_repeated_ids_only_the_own_are_released_once(
    harness: SQLiteHarness,
) -> None:
    await enqueued(harness.store, 3)
    mine = await leased(harness.store, 2, owner="a")
    [theirs] = await leased(harness.store, owner="b")
    jobs = Jobs(harness.store)
    ids = [mine[0].id, mine[0].id, theirs.id, "nobody's", "", "💥"]

    assert await jobs.release_jobs(ids, "a") == 1
    assert await jobs.release_jobs(ids, "a") == 0
    assert (await look(harness.store, theirs.ref)).owner == "b"
    await harness.store.settle([completed(mine[1].lease)])
    assert await jobs.release_jobs([mine[1].id], "a") == 0
    assert (await look(harness.store, mine[1].ref)).status is Status.COMPLETED


async def test_nothing_to_release_or_cancel_asks_the_store_nothing_that_writes(
    harness: SQLiteHarness,
) -> None:
    book = Book()
    jobs = Jobs(Spied(harness.store, book))

    assert await jobs.release_jobs([], "a") == 0
    assert await jobs.cancel([]) == 0
    assert [call.name for call in book.asked] == []


async def test_one_id_is_as_good_as_a_list_of_one(harness: SQLiteHarness) -> None:
    jobs = Jobs(harness.store)
    [first, second] = await enqueued(harness.store, 2)

    assert await jobs.edit(first.id, priority=5) == 1
    assert await jobs.cancel(first.id) == 1
    [running] = await leased(harness.store, owner="a")
    assert await jobs.release_jobs(running.id, "a") == 1
    assert (running.id, (await look(harness.store, first)).priority) == (second.id, 5)


async def test_beats_for_leases_of_others_old_ones_and_a_hundred_thousand_at_once_change_nothing(
    harness: SQLiteHarness,
) -> None:
    await enqueued(harness.store, 2)
    [first, second] = await leased(harness.store, 2)
    mixed = Lease(first.queue, first.id, second.fence + 1)
    old = Lease(second.queue, second.id, second.fence - 1)
    strangers = [Lease("q", f"nobody {number}", 1) for number in range(100_000)]
    beats = [Beat(lease, 9999.0) for lease in (mixed, old, *strangers)]

    answer = await harness.store.heartbeat(WorkerInfo(id="w"), beats)

    assert set(answer.verdicts.values()) == {Verdict.LOST}
    assert len(answer.verdicts) == 100_002
    for job in (first, second):
        assert (await look(harness.store, job.ref)).lease_until == job.lease_until


async def test_two_outcomes_for_one_lease_at_once_have_one_winner(harness: SQLiteHarness) -> None:
    stores = [harness.store, await harness.another()]
    for _ in range(10):
        job = await one_leased(harness.store)
        outcomes = [completed(job.lease, 1), failed(job.lease, trouble(Category.PERMANENT))]
        answers = await asyncio.gather(
            *(store.settle([outcome]) for store, outcome in zip(stores, outcomes, strict=True))
        )
        assert sorted(one for [one] in answers) == [Settled.APPLIED, Settled.LOST]
        now = await look(harness.store, job.ref)
        assert (now.status is Status.COMPLETED) == (answers[0] == [Settled.APPLIED])


async def test_a_finished_job_can_be_neither_cancelled_nor_released(harness: SQLiteHarness) -> None:
    jobs = Jobs(harness.store)
    done, other = await one_leased(harness.store), (await enqueued(harness.store))[0]
    await harness.store.settle([completed(done.lease, "kept")])

    assert await jobs.cancel([done.id]) == 0
    assert await harness.store.settle([released(done.lease)]) == [Settled.LOST]
    assert (await look(harness.store, done.ref)).result == "kept"
    assert [await jobs.cancel([other.id]), await jobs.cancel([other.id])] == [1, 0]


async def test_a_retry_leaves_jobs_alone_that_wait_or_run(harness: SQLiteHarness) -> None:
    running = await one_leased(harness.store)
    [waiting] = await enqueued(harness.store, delay=60.0)

    assert await Jobs(harness.store).retry(Filter(ids=(running.id, waiting.id))) == 0
    assert (await look(harness.store, running.ref)).lease == running.lease
    assert await states(harness.store) == {"pending": 1, "processing": 1}


async def test_a_retry_of_many_dead_letters_comes_in_bounded_steps(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 2500)
    dead = await leased(harness.store, 2500)
    await harness.store.settle([failed(job.lease, trouble()) for job in dead])
    book = Book()

    assert await Jobs(Spied(harness.store, book)).retry_failed_jobs() == 2500
    assert len(book.of("requeue")) == 3
    assert await states(harness.store) == {"pending": 2500}


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), "\ud800", "x" * 2_000_000])
async def test_progress_that_cannot_be_stored_is_refused_where_it_is_reported(
    app: Unstuck, value: Any
) -> None:
    @app.task
    async def work() -> str:
        current_job().progress(0.5)
        with pytest.raises(PayloadError, match="progress"):
            current_job().progress(value)
        return "went on"

    handle = await work.enqueue()
    await burst(app)

    assert await handle.result() == "went on"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [Speechless(), Permanent("x" * 20_000_000)], ids=["speechless", "endless"])
async def test_an_exception_with_no_text_or_too_much_is_stored_in_short(
    app: Unstuck, error: Exception
) -> None:
    @app.task(retry=1)
    async def work() -> None:
        raise error

    handle = await work.enqueue()
    await burst(app)

    job = await handle.job()
    assert job.status is Status.FAILED
    assert job.error is not None
    assert job.error.code in ("Speechless", "permanent")
    assert 5 < len(job.error.message) <= 9000
    assert len(job.error.stack) <= 17_000


async def test_a_handler_that_ignores_its_cancellation_is_cancelled_in_the_store_at_once(
    app: Unstuck,
) -> None:
    release, running = asyncio.Event(), asyncio.Event()

    @app.task(heartbeat=0.05)
    async def deaf() -> str:
        running.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    handle = await deaf.enqueue()
    async with at_work(app) as worker:
        await running.wait()
        assert await handle.cancel() is True
        assert (await handle.job()).cancelled
        assert await handle.cancel() is False
        release.set()
        await until_async(lambda: not worker._held, 10, "the handler to end")
    job = await handle.job()
    assert (job.cancelled, job.result) == (True, None)


async def test_a_worker_whose_code_cannot_be_imported_reports_it_and_touches_no_job(
    harness: SQLiteHarness, tmp_path: Path
) -> None:
    (tmp_path / "lacking.py").write_text("import a_module_that_is_not_there\n")
    [ref] = await enqueued(harness.store)
    command = [str(Path(sys.executable).parent / "unstuck"), "worker", "lacking:app"]
    ended = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=tmp_path,
        env={**os.environ, "UNSTUCK_STORE": harness.url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 2
    assert "a_module_that_is_not_there" in ended.stderr
    assert (await look(harness.store, ref)).fence == 0


@pytest.mark.accepts("MQ-044")
async def test_anybody_can_follow_how_jobs_end(tmp_path: Path) -> None:
    async with SQLiteHarness(tmp_path, "?events=all") as harness, Unstuck(harness.url) as app:

        @app.task(retry=1)
        async def work(good: bool) -> None:
            if not good:
                raise Permanent("no")

        seen = [event.cursor for event in await harness.store.events()]
        good, bad = await app.enqueue_many([work.call(True), work.call(False)])
        await burst(app)
        told = await harness.store.events(after=seen[-1] if seen else None)

    ends = {(event.job, event.type) for event in told}
    assert ends >= {(good.id, "completed"), (bad.id, "failed"), (bad.id, "alert")}
    assert (good.id, "failed") not in ends
