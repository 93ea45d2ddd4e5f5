"""Rates: how many jobs start, and what becomes of those that may not."""

import asyncio
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support.folders import IMPORTABLE
from support.ledger import Ledger
from support.processes import Child
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Filter, Permanent, Rate, Retry, Status, Transient, Unstuck, Worker, current_job
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Ending, NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import Outcome
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts, states

pytestmark = pytest.mark.anyio
LONG = 3600.0


@pytest.mark.slow
@pytest.mark.accepts("EMB-010", "EMB-157")
async def test_six_processes_together_never_start_more_than_the_rate_allows(
    harness: SQLiteHarness, tmp_path: Path
) -> None:
    count, per, total = 20, 2.0, 75
    ledger = Ledger(tmp_path / "ledger")
    env = {
        "UNSTUCK_STORE": harness.url,
        "PYTHONPATH": f"{IMPORTABLE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        **ledger.env(),
    }
    argv = [str(Path(sys.executable).parent / "unstuck"), "worker", "rated_app:app", "--processes", "6"]
    with Child(argv, tmp_path / "log", env=env, cwd=tmp_path) as child:

        async def all_six() -> bool:
            return len((await harness.store.fleet()).workers) == 6

        async def done() -> bool:
            return (await counts(harness.store, "rated")).completed == total

        await until_async(all_six, 40, "six workers", child.log)
        jobs = [NewJob(queue="rated", task="call", id=new_id(), payload={}) for _ in range(total)]
        await harness.store.enqueue(jobs)
        await until_async(done, 40, "all jobs to be done", child.log)

    runs = ledger.runs()
    starts = sorted(run.begin / 1e9 for run in runs)
    assert len({run.job for run in runs}) == len(starts) == total
    # 21 starts in a row always take longer than one interval, wherever one begins to count.
    assert min(after - before for before, after in zip(starts, starts[count:], strict=False)) >= per
    assert starts[count - 1] - starts[0] < per  # and yet all 20 could start within the first
    assert len({run.pid for run in runs}) > 1


@pytest.mark.accepts("REC-030", "REC-031", "REC-035")
async def test_ten_are_leased_tokens_last_for_three_and_seven_are_back_at_once(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    go_on, started = asyncio.Event(), []

    @app.task(rate=Rate(3, per=LONG))
    async def call(number: int) -> None:
        started.append(current_job().id)
        await go_on.wait()
        if current_job().id == started[0]:
            raise Permanent("a failure is a normal end, too")

    ids = {handle.id for handle in await app.enqueue_many([call.call(number) for number in range(10)])}
    book = await spied(app)
    running = asyncio.create_task(Worker(app).process_jobs(10))

    async def given_back() -> bool:
        return await states(harness.store, "default") == {"pending": 7, "processing": 3}

    await until_async(given_back, 10, "seven jobs to come back while three run")
    assert sum(len(call.args[0]) for call in book.of("settle")) == 7
    waiting = (await harness.store.find(Filter(status=Status.PENDING))).jobs
    assert {job.id for job in waiting} == ids - set(started)
    assert {(job.owner, job.lease_until, job.attempts) for job in waiting} == {(None, None, 0)}
    go_on.set()

    assert await running == 3
    assert await states(harness.store, "default") == {"pending": 7, "completed": 2, "failed": 1}


@pytest.mark.accepts("REC-029", "REC-069")
async def test_what_has_no_token_is_given_back_in_one_call_and_free_for_others(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    started: list[str] = []

    @app.task(rate=Rate(3, per=LONG))
    async def call() -> None:
        started.append(current_job().id)

    ids = [handle.id for handle in await app.enqueue_many([call.call() for _ in range(10)])]
    book = await spied(app)
    assert await Worker(app).process_jobs(10) == 3

    words = [Counter(outcome.ending for outcome in call.args[0]) for call in book.of("settle")]
    assert [word[Ending.RELEASED] for word in words if Ending.RELEASED in word] == [7]
    assert sum(words, Counter()) == {Ending.RELEASED: 7, Ending.COMPLETED: 3}
    theirs = await harness.store.lease({"default": Share(60.0, 10)}, 10, "somebody else")
    assert {job.id for job in theirs} == set(ids) - set(started)
    assert {job.attempts for job in theirs} == {1}  # theirs is the first


async def test_releases_for_want_of_a_token_leave_all_retries(app: Unstuck, harness: SQLiteHarness) -> None:
    runs: list[int] = []

    @app.task(rate=Rate(9, per=LONG), retry=Retry(attempts=3, backoff=(0.0,)))
    async def call() -> None:
        runs.append(current_job().attempt)
        raise Transient("no luck")

    handle = await call.enqueue()
    taken = await harness.store.take("default", 9, 9, LONG)
    for _ in range(10):
        assert await Worker(app).process_jobs(1) == 0
    job = await handle.job()
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    assert [event.type for event in await harness.store.events(job=handle.ref)] == ["released"] * 10

    await harness.store.give_back("default", 9, taken.stamp)
    await Worker(app).process_jobs(1)
    assert (await handle.job()).status is Status.PENDING
    await Worker(app).process_jobs(1)
    await Worker(app).process_jobs(1)
    assert runs == [1, 2, 3]
    assert await handle.status() is Status.FAILED


@pytest.mark.accepts("EMB-013", "REC-034", "REC-036")
@pytest.mark.parametrize("way", ["round", "run", "stopped"])
async def test_a_running_job_keeps_its_lease_while_there_are_no_tokens(
    app: Unstuck, harness: SQLiteHarness, way: str
) -> None:
    """In a batch whose others were given back, beside a queue that waits, and in a worker that only ends it."""
    go_on, running = asyncio.Event(), asyncio.Event()

    @app.task(rate=Rate(1, per=LONG), lease=20.0, heartbeat=0.05)
    async def call() -> None:
        running.set()
        await go_on.wait()

    first, second = await app.enqueue_many([call.call(), call.call()])
    worker = Worker(app)
    working = asyncio.create_task(worker.process_jobs(2) if way == "round" else worker.run())
    async with Reaper(harness.store, interval=0.2) as reaper:
        await running.wait()
        if way == "stopped":
            worker.stop()
        began = await first.job()

        async def beaten() -> bool:
            until = (await first.job()).lease_until
            return until is not None and until.timestamp() > time.time() + 10.0

        for _ in range(2):  # after which the first lease would have run out 10 s ago
            await harness.age(15)
            await until_async(beaten, 10, "a beat for it")

        assert await reaper.recover() == []
        now, other = await first.job(), await second.job()
        assert (now.status, now.fence, now.crashes) == (Status.PROCESSING, began.fence, 0)
        assert now.lease_until is not None
        assert now.lease_until.timestamp() > time.time()
        assert (other.status, other.owner, other.attempts) == (Status.PENDING, None, 0)
        assert (other.fence > 0) is (way == "round")
        go_on.set()
        await first.result(10)
        worker.stop()
        await working


@pytest.mark.accepts("REC-073")
async def test_a_worker_beats_for_what_runs_and_never_for_what_it_gave_back(app: Unstuck) -> None:
    go_on = asyncio.Event()

    @app.task(rate=Rate(3, per=LONG), lease=20.0, heartbeat=0.05)
    async def call() -> None:
        await go_on.wait()

    await app.enqueue_many([call.call() for _ in range(10)])
    book = await spied(app)
    working = asyncio.create_task(Worker(app).process_jobs(10))

    def outcomes() -> list[Outcome]:
        return [outcome for asked in book.of("settle") for outcome in asked.args[0]]

    await until_async(lambda: len(outcomes()) == 7, 10, "seven jobs to be given back")
    given_back = {outcome.lease for outcome in outcomes()}
    told = (
        len(book.of("heartbeat")) + 2
    )  # one may have been under way, and been told with what was held before
    await until_async(lambda: len(book.of("heartbeat")) >= told + 3, 10, "further beats")
    beaten = [{beat.lease for beat in asked.args[1]} for asked in book.of("heartbeat")[told:]]
    assert {len(leases) for leases in beaten} == {3}
    assert not set.union(*beaten) & given_back
    go_on.set()
    assert await working == 3


@pytest.mark.accepts("EMB-011")
async def test_recovery_failing_and_cleanup_need_no_token(app: Unstuck, harness: SQLiteHarness) -> None:
    go_on, running = asyncio.Event(), asyncio.Event()

    @app.task(rate=Rate(1, per=LONG), lease=LONG, retention=0.01)
    async def call(name: str) -> None:
        running.set()
        await go_on.wait()
        raise Permanent(name)

    failing = await call.enqueue("failing")
    async with at_work(app):
        await running.wait()  # with the only token
        old = await call.enqueue("old")
        await old.cancel()
        lost = await call.enqueue("lost")
        await harness.store.lease({"default": Share(5.0, 1)}, 1, "crashed")
        await harness.age(900)  # longer than the old one is kept
        assert (await harness.store.take("default", 1, 1, LONG)).granted == 0

        async def recovered_and_cleaned() -> bool:
            return await states(harness.store, "default") == {"pending": 1, "processing": 1}

        async with at_work(app):  # whose start, too, finds no token
            await until_async(recovered_and_cleaned, 10, "recovery and cleanup")
        go_on.set()

        async def failed() -> bool:
            return await failing.status() is Status.FAILED

        await until_async(failed, 10, "the failure to be written")
    assert await lost.status() is Status.PENDING


@pytest.mark.accepts("EMB-014", "EMB-015")
async def test_a_retry_that_is_due_waits_for_a_token(app: Unstuck) -> None:
    starts: list[float] = []

    @app.task(rate=Rate(1, per=3.0), retry=Retry(attempts=2, backoff=(0.05,)))
    async def call() -> None:
        starts.append(time.monotonic())
        raise ConnectionResetError("gone")

    handle = await call.enqueue()
    running = asyncio.create_task(burst(app))
    await until_async(lambda: len(starts) == 1, 10, "the first try")

    async def due() -> bool:
        job = await handle.job()
        return job.error is not None and job.run_at.timestamp() < time.time()

    await until_async(due, 10, "the retry to be due")
    job = await handle.job()
    assert (job.status, job.attempts, len(starts)) == (Status.PENDING, 1, 1)
    await running

    assert len(starts) == 2
    assert starts[1] - starts[0] >= 3.0
    assert await handle.status() is Status.FAILED


@pytest.mark.accepts("EMB-014", "EMB-016", "REC-033")
async def test_a_retry_waits_for_its_token_and_for_its_backoff_whichever_comes_later(app: Unstuck) -> None:
    starts: list[tuple[str, float]] = []

    @app.task(rate=Rate(1, per=1.0), retry=Retry(attempts=3, backoff=(0.05, 4.0)))
    async def call(name: str) -> None:
        starts.append((name, time.monotonic()))
        if name == "flaky" and current_job().attempt < 3:
            raise ConnectionResetError("gone")

    flaky = await call.options(priority=9).enqueue("flaky")
    await call.enqueue("other")
    async with at_work(app):
        await flaky.result(20)

    names, times = zip(*starts, strict=True)
    assert names == ("flaky", "flaky", "other", "flaky")
    assert times[1] - times[0] >= 1.0  # due, and without a token
    assert times[2] - times[1] >= 1.0  # the retry had used one
    assert times[3] - times[1] >= 4.0  # not due, although the other found a token


@pytest.mark.accepts("EMB-012", "EMB-161")
async def test_without_tokens_nothing_starts_until_they_return_and_nobody_asks_all_the_time(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    @app.task(rate=Rate(3, per=1.0))
    async def call() -> None:
        starts.append(time.monotonic())

    await app.enqueue_many([call.call() for _ in range(7)])
    book = await spied(app)
    caplog.set_level(logging.INFO)
    await burst(app)

    assert len(starts) == 7
    assert starts[3] - starts[0] >= 1.0
    assert starts[6] - starts[3] >= 1.0
    assert len(book.of("lease")) < 10
    assert len(book.of("take")) < 15
    [logged] = [record for record in caplog.records if "no token is left of" in record.getMessage()]
    assert (logged.name, vars(logged)["queues"]) == ("unstuck.worker", ["default"])


async def test_a_lease_that_finds_nothing_gives_its_tokens_back(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: neither its next question for tokens nor its next look for jobs comes in time."""
    for name in (
        "unstuck.worker.rate_limits.AGAIN",
        "unstuck.worker.leasing.LOOK",
    ):
        monkeypatch.setattr(name, 60.0)
    starts: list[None] = []

    @app.task(rate=Rate(2, per=LONG))
    async def call() -> None:
        starts.append(None)

    book = await spied(app)
    async with at_work(app):
        await until_async(lambda: len(book.of("take")) >= 1, 10, "a look at the empty queue")
        await app.enqueue_many([call.call() for _ in range(3)])
        await until_async(lambda: len(starts) == 2, 20, "both tokens to be there")
        await asyncio.sleep(0.3)  # time enough to start the third wrongly
    assert len(starts) == 2


async def test_queues_with_one_bucket_share_its_tokens(app: Unstuck) -> None:
    starts: list[str] = []

    @app.task(queue="a", rate=Rate(3, per=1.0, bucket="provider"))
    async def one() -> None:
        starts.append("a")

    @app.task(queue="b", rate=Rate(3, per=1.0, bucket="provider"))
    async def other() -> None:
        starts.append("b")

    began = time.monotonic()
    await app.enqueue_many([task.call() for task in (one, other) for _ in range(2)])
    await burst(app)

    assert sorted(starts) == ["a", "a", "b", "b"]
    assert time.monotonic() - began >= 1.0  # the fourth had to wait, whichever queue it is of


async def test_what_follows_a_job_is_done_in_the_same_burst(app: Unstuck) -> None:
    done: list[int] = []

    @app.task(rate=Rate(100, per=LONG))
    async def call(left: int) -> None:
        await asyncio.sleep(0.01)
        done.append(left)
        if left:
            current_job().then(call.call(left - 1))

    await call.enqueue(5)
    await burst(app)

    assert done == [5, 4, 3, 2, 1, 0]
