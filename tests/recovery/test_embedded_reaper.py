"""Recovery inside any application: async with Reaper(url)."""

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from support.embeddings import embedding
from support.spy import Book, Spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import (
    ConfigError,
    Jobs,
    Permanent,
    Policy,
    Retry,
    Status,
    StoreUnavailable,
    Transient,
    Unstuck,
    Worker,
)
from unstuck.protocol.job import Category, Ref
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, states

pytestmark = pytest.mark.anyio


def pending(store: Store, ref: Ref) -> Callable[[], Awaitable[bool]]:
    async def is_pending() -> bool:
        return (await look(store, ref)).status is Status.PENDING

    return is_pending


@pytest.mark.accepts("REAP-072")
async def test_a_reaper_recovers_at_its_start_and_goes_on_until_the_block_ends(
    harness: SQLiteHarness,
) -> None:
    before = asyncio.all_tasks()
    first = await one_leased(harness.store, seconds=5.0)
    await harness.age(10)
    async with Reaper(harness.url, interval=0.3):
        assert (await look(harness.store, first.ref)).status is Status.PENDING
        [again] = await leased(harness.store, seconds=5.0)
        await harness.age(10)
        await until_async(pending(harness.store, again.ref), 10, "the second recovery")
    [once_more] = await leased(harness.store, seconds=5.0)
    await harness.age(10)
    await asyncio.sleep(0.7)  # two intervals: time enough for a reaper that did not end

    assert (await look(harness.store, once_more.ref)).status is Status.PROCESSING
    assert asyncio.all_tasks() == before


async def test_a_reaper_on_a_store_that_is_given_leaves_it_open(harness: SQLiteHarness) -> None:
    async with Reaper(harness.store):
        pass

    assert await harness.store.count() == []


@pytest.mark.accepts("REAP-071")
async def test_errors_are_logged_and_the_next_round_still_happens(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job = await one_leased(harness.store, seconds=5.0)
    await harness.age(10)
    book = Book()
    book.fails["reclaim"] = StoreUnavailable("it is away")
    async with Reaper(Spied(harness.store, book), interval=0.2):
        assert "recovery failed, will try again: it is away" in caplog.messages
        book.fails["reclaim"] = RuntimeError("a mistake of ours")
        await until_async(lambda: "a mistake of ours" in caplog.text, 10, "the next round")
        assert "recovery failed, will try again" in caplog.messages
        book.fails.clear()
        # What it was blind for is not held against the worker: its lease of 5 s ran out before that.
        await harness.age(10)
        await until_async(pending(harness.store, job.ref), 10, "the recovery after the errors")


@pytest.mark.accepts("REC-072")
async def test_an_interval_of_0_is_loud_and_recovers_nothing(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job = await one_leased(harness.store, seconds=5.0)
    await harness.age(10)
    async with Reaper(harness.url, interval=0):
        await asyncio.sleep(0.3)

    assert (await look(harness.store, job.ref)).status is Status.PROCESSING
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("recovery is off (interval 0)")


@pytest.mark.parametrize("interval", [-1, float("nan"), "60s", 86401, True])
def test_an_interval_that_cannot_be_is_refused(interval: float) -> None:
    with pytest.raises(ConfigError, match="interval"):
        Reaper("sqlite:///jobs.db", interval=interval)


@pytest.mark.accepts("REC-078")
async def test_many_reapers_at_once_recover_each_job_once(harness: SQLiteHarness) -> None:
    refs = await enqueued(harness.store, 300)
    await leased(harness.store, 300, seconds=5.0)
    await harness.age(10)
    reapers = [Reaper(await harness.another()) for _ in range(4)]

    done = await asyncio.gather(*(reaper.recover() for reaper in reapers))

    assert sorted(outcome.lease.id for some in done for outcome in some) == sorted(ref.id for ref in refs)
    jobs = [await look(harness.store, ref) for ref in refs[::30]]
    assert {(job.status, job.attempts, job.crashes) for job in jobs} == {(Status.PENDING, 1, 1)}


async def test_the_jobs_of_a_dead_worker_do_not_all_come_back_at_the_same_moment(
    harness: SQLiteHarness,
) -> None:
    await enqueued(harness.store, 20, lapse_backoff=(10.0,))
    await leased(harness.store, 20, seconds=5.0)
    await harness.age(10)
    delays = [outcome.delay for outcome in await Reaper(harness.store).recover()]

    assert len(set(delays)) == 20
    assert all(10.0 <= delay <= 12.0 for delay in delays)


@pytest.mark.accepts("EMB-077", "EMB-079")
async def test_three_missed_beats_are_warned_of_and_the_next_round_runs_the_job(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    app.queue("embedding", **embedding())
    policy = Policy(**embedding())  # type: ignore[arg-type]

    @app.task(queue="embedding")
    async def embed() -> str:
        return "done"

    handle = await embed.enqueue()
    await harness.store.lease({"embedding": Share(policy.lease, 1)}, 1, "the silent worker")
    await harness.age(3 * policy.heartbeat)
    await Worker(app).process_jobs(10)

    [warning] = [record for record in caplog.records if record.name == "unstuck.reaper"]
    assert warning.levelno == logging.WARNING
    assert vars(warning)["jobIds"] == [handle.id]
    [event] = [one for one in await harness.store.events(job=handle.ref) if one.type == "reaper:requeued"]
    assert "worker the silent worker sent its last heartbeat" in event.data["details"]["message"]
    assert await handle.result() == "done"


@pytest.mark.accepts("REC-041")
async def test_beside_recovery_jobs_fail_and_are_cleaned_up_as_before(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went before it in the same spec: days of retention, what a failure leaves behind, when it is final."""
    runs: list[str] = []
    app.queue("embedding", **embedding())

    @app.task(queue="embedding", retry=Retry(attempts=3, backoff=(0.0,)))
    async def embed(word: str) -> None:
        runs.append(word)
        if word != "good":
            raise {"flaky": Transient, "hopeless": Permanent}[word](f"no answer to {word}")

    for days in (None, "6", "31", "14.5"):
        if days:
            monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", days)
        with pytest.raises(ConfigError, match="EMBED_JOB_RETENTION_DAYS"):
            Worker(app)
    for days in ("30", "7"):
        monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", days)
        Worker(app)

    words = ("flaky", "hopeless", "good")
    handles = await app.enqueue_many([embed.call(word) for word in words])
    await harness.store.lease({"embedding": Share(300.0, 3)}, 3, "crashed")
    await harness.age(301)
    await burst(app)

    ended = [await handle.job() for handle in handles]
    assert Counter(runs) == {"flaky": 3, "hopeless": 1, "good": 1}
    assert [(job.status, job.attempts, job.crashes) for job in ended] == [
        (Status.FAILED, 4, 1), (Status.FAILED, 2, 1), (Status.COMPLETED, 2, 1),
    ]  # fmt: skip
    for job, category, attempt in zip(ended, (Category.TRANSIENT, Category.PERMANENT), (4, 2), strict=False):
        assert job.error is not None
        assert (job.error.category, job.error.attempt) == (category, attempt)
        assert job.error.message == f"no answer to {job.payload['word']}"
        assert "in embed" in job.error.stack
    await burst(app)
    assert len(runs) == 5, "what had failed was run again"

    await harness.age(2 * 86400)
    younger = await embed.enqueue("good")
    await burst(app)
    await app.enqueue_many([embed.call("good"), embed.call("good")])
    await harness.age(6 * 86400)
    assert await harness.store.lease({"embedding": Share(3600.0, 1)}, 1, "at work")
    await harness.store.pause("embedding", "so that the other waits")

    async def cleaned() -> bool:
        kept = {"pending": 1, "processing": 1, "completed": 1, "failed": 0}
        return await Jobs(harness.store).get_queue_status("embedding") == kept

    async with at_work(app):
        await until_async(cleaned, 10, "what ended eight days ago to be deleted, and nothing else")
    assert await younger.status() is Status.COMPLETED


@pytest.mark.accepts("REC-061", "REC-082")
async def test_recovery_changes_no_schema_and_0_takes_it_back(app: Unstuck, harness: SQLiteHarness) -> None:
    @app.task
    async def work() -> str:
        return "as ever"

    handle = await work.enqueue()
    schema = harness.rows("SELECT sql FROM sqlite_schema ORDER BY name")
    await harness.store.lease({"default": Share(5.0, 1)}, 1, "crashed")
    await harness.age(10)
    plain = await work.enqueue()
    async with at_work(app, recovery=0):  # the rollback: everything but recovery works as before
        assert await plain.result(10) == "as ever"
    assert await handle.status() is Status.PROCESSING

    await burst(app)
    assert await handle.result() == "as ever"
    assert harness.rows("SELECT sql FROM sqlite_schema ORDER BY name") == schema
    assert await Jobs(harness.store).get_queue_status() == {
        "pending": 0, "processing": 0, "completed": 2, "failed": 0,
    }  # fmt: skip


@pytest.mark.accepts("REC-065", "REC-079")
async def test_recovery_needs_nothing_but_the_store(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*args: object) -> None:
        raise AssertionError("somebody was called over the network")

    monkeypatch.setattr(socket.socket, "connect", nobody)
    monkeypatch.setattr(socket.socket, "connect_ex", nobody)
    for module in ("prometheus_client", "opentelemetry"):
        monkeypatch.setitem(sys.modules, module, None)  # as if metrics were not installed

    @app.task
    async def work() -> None: ...

    await app.enqueue_many([work.call() for _ in range(20)])
    await harness.store.lease({"default": Share(5.0, 10)}, 10, "crashed")
    await harness.age(10)
    async with Reaper(harness.url, interval=1.0), Reaper(harness.url, interval=1.0):
        await asyncio.gather(burst(app), burst(app))

    assert await states(harness.store, "default") == {"completed": 20}
