"""Finished jobs are deleted when their days are over, and nothing else is."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.embeddings import embedding
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, Filter, Policy, Status, StoreUnavailable, Unstuck
from unstuck.protocol.job import NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed, failed
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import trouble
from unstuck.worker.retention import Retention, retention

pytestmark = pytest.mark.anyio
DAY = 86400.0
VARIABLE = "EMBED_JOB_RETENTION_DAYS"
EMBEDDING = Policy(**embedding())  # type: ignore[arg-type]


async def finish(store: Store, queue: str, count: int = 2) -> None:
    """Jobs that are finished, one half completed and the other failed."""
    await store.enqueue([NewJob(queue=queue, task="t", id=f"{queue}-{n}") for n in range(count)])
    jobs = await store.lease({queue: Share(60, count)}, count, "w")
    await store.settle(
        [completed(job.lease) if n % 2 else failed(job.lease, trouble()) for n, job in enumerate(jobs)]
    )


async def left(store: Store) -> dict[str, int]:
    return {of.queue: of.completed + of.failed for of in await store.count() if of.completed or of.failed}


@contextlib.asynccontextmanager
async def running(upkeep: Retention) -> AsyncIterator[None]:
    task = asyncio.create_task(upkeep.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.accepts("EMB-021", "EMB-024", "EMB-025")
@pytest.mark.parametrize(("days", "kept"), [("7", {}), ("30", {"embedding": 2})])
async def test_the_variable_sets_for_how_long_finished_jobs_are_kept(
    app: Unstuck,
    harness: SQLiteHarness,
    days: str,
    kept: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(VARIABLE, days)
    monkeypatch.setattr("unstuck.worker.worker.Retention", functools.partial(Retention, every=0.05))
    caplog.set_level(logging.INFO, "unstuck.upkeep")
    app.queue("embedding", **embedding())
    app.task(name="t", queue="embedding")(lambda: None)

    async def cleaned() -> None:
        caplog.clear()
        await until_async(lambda: caplog.text.count("past their days") >= 2, 10, "a whole round")

    await finish(harness.store, "embedding")
    await harness.age(6.9 * DAY)
    async with at_work(app):
        await cleaned()
        assert await left(harness.store) == {"embedding": 2}

        await harness.age(0.2 * DAY)
        await cleaned()
        assert await left(harness.store) == kept

        await harness.age(22.8 * DAY)
        await cleaned()
        assert await left(harness.store) == kept
        await harness.age(0.2 * DAY)
        await cleaned()
    assert await left(harness.store) == {}


@pytest.mark.accepts("EMB-022")
def test_the_variable_may_be_7_to_30_days_and_without_one_14_hold() -> None:
    said = [retention({"q": EMBEDDING}, {VARIABLE: days}) for days in ("7", "14", " 30 ")]

    assert said == [{"q": 7}, {"q": 14}, {"q": 30}]
    assert retention({"mail": Policy()}, {}) == {"mail": 14}
    for days in ("6", "31"):
        with pytest.raises(ConfigError):
            retention({"q": EMBEDDING}, {VARIABLE: days})


@pytest.mark.parametrize("days", ["6", "31", "14 days", "14.5", "14.0", "-14", "0", "nan", "forever", "٨"])
def test_days_out_of_range_or_not_whole_are_refused(days: str) -> None:
    with pytest.raises(ConfigError) as caught:
        retention({"mail": Policy(), "q": EMBEDDING}, {VARIABLE: days})

    assert str(caught.value).startswith(f"{VARIABLE} is ")
    assert str(caught.value).endswith("it must be a whole number from 7 to 30")


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {VARIABLE: "  "}])
def test_days_that_are_not_set_are_refused_with_the_next_step(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        retention({"q": EMBEDDING}, environ)

    assert str(caught.value) == (
        f"{VARIABLE} is not set: a worker of queue 'q' needs it to say for how many days finished jobs are kept, "
        f"a whole number from 7 to 30, for example {VARIABLE}=14"
    )


@pytest.mark.accepts("EMB-026", "EMB-027")
async def test_jobs_that_wait_or_run_are_left_alone_however_old(harness: SQLiteHarness) -> None:
    store = harness.store
    await store.enqueue([NewJob(queue="q", task="t", id=str(n)) for n in range(3)])
    await store.lease({"q": Share(60, 1)}, 1, "w")
    await harness.age(10_000 * DAY)

    assert await Retention(store, {"q": 0.01}).clean() == 0
    jobs = (await store.find(Filter())).jobs
    assert sorted(job.status for job in jobs) == [Status.PENDING, Status.PENDING, Status.PROCESSING]


async def test_each_queue_has_its_own_days_and_one_may_keep_its_jobs_for_ever(harness: SQLiteHarness) -> None:
    policies = {"short": Policy(retention=1), "long": Policy(retention=20), "ever": Policy(retention=None)}
    for queue in [*policies, "other"]:
        await finish(harness.store, queue)
    await harness.age(5 * DAY)

    days = retention(policies, {})
    assert days == {"short": 1, "long": 20}
    assert await Retention(harness.store, days).clean() == 2
    assert await left(harness.store) == {"long": 2, "ever": 2, "other": 2}


@pytest.mark.accepts("EMB-037")
async def test_upkeep_cleans_at_its_start_and_again_and_again(harness: SQLiteHarness) -> None:
    async def clean() -> bool:
        return await left(harness.store) == {}

    await finish(harness.store, "q")
    await harness.age(15 * DAY)
    async with running(Retention(harness.store, {"q": 14.0})):  # hourly: only the start can have done it
        await until_async(clean, 10, "the first cleanup")
    async with running(Retention(harness.store, {"q": 14.0}, every=0.05)):
        for _ in range(2):
            await finish(harness.store, "q")
            await harness.age(15 * DAY)
            await until_async(clean, 10, "the next cleanup")


@pytest.mark.accepts("EMB-159")
async def test_the_queue_of_a_worker_does_not_grow_beyond_the_jobs_of_seven_days(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.worker.worker.Retention", functools.partial(Retention, every=0.05))

    @app.task(queue="q", retention=7)
    async def work() -> None: ...

    async def one() -> bool:
        return await left(harness.store) == {"q": 1}

    async with at_work(app):
        for _ in range(5):
            await (await work.enqueue()).result(10)
            await harness.age(3.6 * DAY)
            await until_async(one, 10, "the last job alone to be left")


async def test_upkeep_goes_on_after_errors(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    troubles: list[Exception] = [StoreUnavailable("it is away"), RuntimeError("a mistake")]
    delete = harness.store.delete

    async def failing(which: Filter, limit: int = 1000) -> int:
        if troubles:
            raise troubles.pop(0)
        return await delete(which, limit)

    async def clean() -> bool:
        return await left(harness.store) == {}

    await finish(harness.store, "q")
    await harness.age(15 * DAY)
    monkeypatch.setattr(harness.store, "delete", failing)
    async with running(Retention(harness.store, {"q": 14.0}, every=0.05)):
        await until_async(clean, 10, "a cleanup after the errors")

    assert "cleanup of queue 'q' failed, will try again: it is away" in caplog.messages
    assert "RuntimeError: a mistake" in caplog.text


async def test_a_queue_that_fails_does_not_stop_the_others(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = harness.store.delete

    async def failing(which: Filter, limit: int = 1000) -> int:
        if which.queue == "bad":
            raise StoreUnavailable("it is away")
        return await delete(which, limit)

    for queue in ("bad", "good"):
        await finish(harness.store, queue)
    await harness.age(15 * DAY)
    monkeypatch.setattr(harness.store, "delete", failing)

    assert await Retention(harness.store, {"bad": 14, "good": 14}).clean() == 2
    assert await left(harness.store) == {"bad": 2}


async def test_several_clean_up_at_once_and_report_how_many_they_deleted(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [harness.store, await harness.another(), await harness.another()]
    await finish(harness.store, "q", 1000)
    await finish(harness.store, "r", 300)
    await harness.age(15 * DAY)
    with caplog.at_level(logging.INFO, "unstuck.upkeep"):
        counts = await asyncio.gather(*(Retention(store, {"q": 14, "r": 14}).clean() for store in stores))

    assert sum(counts) == 1300
    assert await left(harness.store) == {}
    told: list[dict[str, int]] = [vars(record)["deleted"] for record in caplog.records]
    assert sum(sum(of.values()) for of in told) == 1300


@pytest.mark.parametrize("every", [0, -1, 86401, "60", float("nan")])
async def test_the_time_between_cleanups_has_its_bounds(harness: SQLiteHarness, every: Any) -> None:
    with pytest.raises(ConfigError, match=r"every is .* it must be a number from 0\.05 to 86400"):
        Retention(harness.store, {"q": 14}, every=every)
