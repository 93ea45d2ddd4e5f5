"""Recovery inside any application: async with Reaper(url)."""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable

import pytest
from support.spy import Book, Spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import ConfigError, Jobs, Policy, Status, StoreUnavailable, Unstuck, Worker
from unstuck.model import Ref
from unstuck.profiles import embedding
from unstuck.reaper import Reaper
from unstuck.store import Share, Store
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


@pytest.mark.accepts("EMB-077", "EMB-079")
async def test_three_missed_beats_are_warned_of_and_the_next_round_runs_the_job(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    app.queue("embedding", **embedding({}))
    policy = Policy(**embedding({}))  # type: ignore[arg-type]

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
    assert "worker the silent worker was heard" in event.data["details"]["message"]
    assert await handle.result() == "done"


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


@pytest.mark.accepts("REC-064")
async def test_a_recovered_job_is_leased_as_any_other(harness: SQLiteHarness) -> None:
    old = await one_leased(harness.store, seconds=5.0)
    await harness.age(10)
    await Reaper(harness.store).recover()
    await enqueued(harness.store)
    both = await leased(harness.store, 2, owner="w2", seconds=60.0)

    assert {(job.owner, job.status) for job in both} == {("w2", Status.PROCESSING)}
    ends = [job.lease_until.timestamp() for job in both if job.lease_until]
    assert ends == pytest.approx([ends[0]] * 2, abs=0.01)
    [again] = [job for job in both if job.id == old.id]
    assert again.fence > old.fence
    assert (again.attempts, again.crashes) == (2, 1)


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
