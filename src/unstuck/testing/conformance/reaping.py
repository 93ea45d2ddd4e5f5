"""The reaper as something that runs: what it logs, what it survives, when it holds back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from unstuck.app import Unstuck
from unstuck.errors import StoreUnavailable
from unstuck.model import Status
from unstuck.reaper import Reaper
from unstuck.store import Store
from unstuck.testing.conformance.given import counts, leased, look, one_leased, states
from unstuck.testing.harness import Harness
from unstuck.worker import Worker


@pytest.mark.accepts("REC-007", "REC-052")
async def test_recovery_logs_how_many_and_which(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    job = await one_leased(harness.store)
    await harness.age(61)

    with caplog.at_level(logging.INFO, "unstuck.reaper"):
        await Reaper(harness.store).recover()
        await Reaper(harness.store).recover()

    first, second = (vars(record) for record in caplog.records)
    assert (first["recovered"], first["jobIds"]) == (1, [job.id])
    assert second["recovered"] == 0


@pytest.mark.accepts("REC-001", "REC-044", "MQ-011")
async def test_a_worker_takes_back_what_another_lost_and_then_runs_what_comes(harness: Harness) -> None:
    """Nobody calls for a recovery, and the worker has nothing else to do."""
    async with Unstuck(harness.url) as app:

        @app.task(queue="q")
        async def task() -> str:
            return "done"

        lost = await task.enqueue()
        assert await leased(harness.store, owner="crashed", seconds=1.0)
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        try:
            assert await lost.result(20) == "done"
            assert await (await task.enqueue()).result(20) == "done"
        finally:
            worker.stop()
            await running
        job = await lost.job()
        assert (job.attempts, job.crashes) == (2, 1)


class _Ailing:
    """A store that fails a number of times before it answers."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store = store
        self.failures = failures

    def __getattr__(self, name: str) -> object:
        if name in ("clock", "reclaim") and self.failures:
            self.failures -= 1
            raise StoreUnavailable("not now")
        return getattr(self._store, name)


@pytest.mark.accepts("REC-008", "REC-060", "REAP-071")
async def test_a_failed_recovery_is_logged_and_the_next_one_comes(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    await one_leased(harness.store, seconds=1.0)
    await harness.age(61)
    ailing = _Ailing(harness.store, 2)

    reaper = asyncio.create_task(Reaper(ailing, interval=0.3).run())  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(20):
            while await states(harness.store) != {"pending": 1}:
                await asyncio.sleep(0.02)
    finally:
        reaper.cancel()
        await asyncio.gather(reaper, return_exceptions=True)

    assert sum("not now" in record.getMessage() for record in caplog.records) == 2


@pytest.mark.accepts("REC-072")
async def test_interval_zero_switches_recovery_off_loudly(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    job = await one_leased(harness.store)
    await harness.age(61)

    await asyncio.wait_for(Reaper(harness.store, interval=0).run(), 10)  # it has nothing to stay for

    assert (await look(harness.store, job.ref)).status is Status.PROCESSING
    assert (await counts(harness.store)).expired == 1
    assert [record.levelname for record in caplog.records if "recovery is off" in record.getMessage()] == [
        "WARNING"
    ]


async def test_after_an_outage_live_workers_get_the_time_to_speak(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=60.0)
    ailing = _Ailing(harness.store, 0)
    reaper = Reaper(ailing)  # type: ignore[arg-type]
    await reaper.recover()
    reaper._answered -= 100.0  # noqa: SLF001 - the outage began 100 s ago, and the lease ran out in it
    await harness.age(101)
    ailing.failures = 1
    with pytest.raises(StoreUnavailable):
        await reaper.recover()

    assert await reaper.recover() == []
    assert (await look(harness.store, job.ref)).status is Status.PROCESSING
    await harness.age(61)
    # What is still silent a lease later is recovered: the outage is over for 61 s more of the store's time.
    reaper._blind[0] = (reaper._blind[0][0] - 61, reaper._blind[0][1] - 61)  # noqa: SLF001
    assert len(await reaper.recover()) == 1
