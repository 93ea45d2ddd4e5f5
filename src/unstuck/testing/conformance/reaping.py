"""The reaper as something that runs: what it logs, what it survives, when it holds back."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from unstuck.app.app import Unstuck
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import reaper_of
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Reclaimed, Recovery
from unstuck.protocol.outcome import retried
from unstuck.protocol.store import Store
from unstuck.recovery.processes import identity
from unstuck.recovery.reaper import HOLD, Reaper
from unstuck.testing.conformance.given import (
    counts,
    enqueued,
    leased,
    look,
    one_leased,
    states,
    trouble,
)
from unstuck.testing.harnesses.harness import Harness
from unstuck.worker.worker import Worker


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


async def test_after_an_outage_live_workers_get_the_time_to_send_a_heartbeat(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=60.0)
    ailing = _Ailing(harness.store, 0)
    reaper = Reaper(ailing)  # type: ignore[arg-type]
    await reaper.recover()
    # The outage began 100 s ago, and the lease ran out in it.
    reaper._availability._recovered = time.monotonic() - 100.0  # noqa: SLF001
    await harness.age(101)
    ailing.failures = 1
    with pytest.raises(StoreUnavailable):
        await reaper.recover()

    assert await reaper.recover() == []
    assert (await look(harness.store, job.ref)).status is Status.PROCESSING
    await harness.age(600)
    # What is still silent long after is recovered: the outage has been over for 600 s more of the store's time.
    blind = reaper._availability._blind  # noqa: SLF001
    older = [(since - 600, until - 600) for since, until in blind]
    blind.clear()
    blind.extend(older)
    assert len(await reaper.recover()) == 1


async def test_what_a_dead_workers_reaper_had_taken_over_is_not_waited_for(harness: Harness) -> None:
    """It was killed between taking a lease over and ending it."""
    job = await one_leased(harness.store, owner="first")
    gone = f"{identity().rpartition('/')[0]}/1"  # had our pid, and began at another time
    await harness.store.heartbeat(WorkerInfo(id="second", host="h", pid=7, identity=gone), [])
    await harness.store.reclaim(Recovery(reaper_of("second"), HOLD, 10, of=["first"]))

    await Reaper(harness.store).recover_dead()

    found = await look(harness.store, job.ref)
    assert (found.status, found.attempts, found.crashes) == (Status.PENDING, 1, 1)


async def test_workers_that_left_are_not_looked_for_and_the_dead_all_at_once(harness: Harness) -> None:
    gone = f"{identity().rpartition('/')[0]}/1"
    for number in range(6):
        facts = WorkerInfo(id=f"w{number}", host="h", pid=7, identity=gone, left=number < 3)
        await harness.store.heartbeat(facts, [])
    counted = _Counted(harness.store)
    reaper = Reaper(counted)  # type: ignore[arg-type]
    await reaper.recover_dead()
    await reaper.recover_dead()

    assert counted.reclaims == [[*(f"w{n}" for n in (3, 4, 5)), *(reaper_of(f"w{n}") for n in (3, 4, 5))]]


async def test_a_retry_does_not_wait_out_a_clock_that_was_put_back(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    jobs = await leased(harness.store, 2)
    await harness.store.settle([retried(job.lease, trouble(), 300.0) for job in jobs])
    [promised] = await enqueued(harness.store, delay=300.0)
    reaper = Reaper(harness.store)
    await reaper.recover()
    await harness.age(-7200)
    later = (await look(harness.store, promised)).run_at
    reaper._availability._looked = (  # noqa: SLF001 - its clock was two hours ahead, then
        reaper._availability._looked[0], reaper._availability._looked[1] + 7200.0  # type: ignore[index] # noqa: SLF001
    )  # fmt: skip
    for _ in range(2):  # a second one, also of another process, finds nothing to do
        await reaper.recover()
        reaper._availability.put_back = True  # noqa: SLF001
    now = (await harness.store.clock()).now

    for job in jobs:
        waits = (await look(harness.store, job.ref)).run_at - now
        assert waits.total_seconds() == pytest.approx(300.0, abs=30.0)
    assert (await look(harness.store, promised)).run_at == later, "that time may be somebody's promise"


class _Counted:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.reclaims: list[list[str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        self.reclaims.append(sorted(recovery.of or (), key=lambda owner: (len(owner), owner)))
        return await self._store.reclaim(recovery)
