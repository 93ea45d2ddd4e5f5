"""A PostgreSQL server that is killed while producers and workers use it, and what its restart must not cause."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from patient_app import LEASE
from support.postgres import Postgres
from support.processes import Child
from support.waiting import until_async
from support.workers import Workers, worker_of

from unstuck import Filter, Status, StoreUnavailable, open_store
from unstuck.operations.verify import broken_rules
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import NewJob
from unstuck.protocol.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NOTICED = "does not answer|heartbeat failed|heartbeats failed"
APART = ("unshare", "--pid", "--fork", "--mount-proc")  # so that only the lease can tell that it is dead


@dataclass
class Place:
    """What workers need to know, on a server of this test's own."""

    server: Postgres
    url: str
    store: Store

    async def crash(self) -> None:
        await asyncio.to_thread(self.server.kill9)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)


@pytest.fixture
async def harness() -> AsyncIterator[Place]:
    with Postgres("15") as server:
        async with open_store(server.url()) as store:
            await store.migrate()
            yield Place(server, server.url(), store)


async def produce(store: Store, acknowledged: list[str], stop: asyncio.Event) -> None:
    """Enqueue until stopped; what was not acknowledged is enqueued again, under the same id."""
    while not stop.is_set():
        jobs = [
            NewJob(queue="long", task="step", id=new_id(), payload={"seconds": 0.01}, max_attempts=50)
            for _ in range(5)
        ]
        while not stop.is_set():
            try:
                await store.enqueue(jobs)
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            else:
                acknowledged += [job.id for job in jobs]
                break
        await asyncio.sleep(0.02)


def ended(workers: Workers) -> Counter[str]:
    return Counter(record.job for record in workers.ledger.read() if record.kind == "end")


async def all_jobs(store: Store) -> dict[str, Status]:
    found: dict[str, Status] = {}
    cursor, first = None, True
    while first or cursor:
        page = await store.find(Filter(), 1000, cursor)
        found |= {job.id: job.status for job in page.jobs}
        cursor, first = page.cursor, False
    return found


@pytest.mark.parametrize("crashes", [2, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
async def test_a_server_killed_again_and_again_loses_no_job_that_it_acknowledged(
    harness: Place, workers: Workers, crashes: int
) -> None:
    acknowledged: list[str] = []
    stop = asyncio.Event()
    started = [workers.start("--recovery", "1", "--concurrency", "10") for _ in range(2)]
    for one in started:  # or it might come when all is over
        await one.until_line_async("takes", 60)
    producing = asyncio.create_task(produce(harness.store, acknowledged, stop))
    try:
        for _ in range(crashes):
            known, done = len(acknowledged), len(ended(workers))
            await until_async(lambda: len(acknowledged) > known + 50, 30, "more to be acknowledged")  # noqa: B023
            await until_async(lambda: len(ended(workers)) > done + 30, 30, "more to end", started[0].log)  # noqa: B023
            await harness.crash()
            for one in started:
                await until_async(lambda: one.says(NOTICED), 30, "it to notice", one.log)  # noqa: B023
            await harness.restart()
    finally:
        stop.set()
    await producing

    async def over() -> dict[str, Status] | None:
        jobs = await all_jobs(harness.store)
        return jobs if set(jobs.values()) <= {Status.COMPLETED, Status.FAILED} else None

    jobs = await until_async(over, 60, "all jobs to end", started[0].log)
    assert set(acknowledged) <= jobs.keys(), "a job that was acknowledged is lost"
    assert set(jobs.values()) == {Status.COMPLETED}
    assert set(ended(workers)) == jobs.keys()
    assert await broken_rules(harness.store) == []
    for one in started:
        assert one.exit_code is None
        assert one.says(NOTICED)
    [after] = await workers.enqueue("step", seconds=0.0)
    await until_async(lambda: ended(workers)[after.id], 20, "one more job", started[0].log)


def starts(workers: Workers) -> Counter[str]:
    return Counter(record.job for record in workers.ledger.read() if record.kind == "begin")


async def all_begun(workers: Workers, count: int, children: list[Child]) -> None:
    await until_async(lambda: len(starts(workers)) == count, 60, f"{count} jobs to run", children[0].log)


@pytest.mark.parametrize(
    ("jobs", "seen"),
    [
        pytest.param(60, False, id="few"),
        pytest.param(1000, True, id="many", marks=[pytest.mark.long, pytest.mark.timeout(240)]),
        pytest.param(
            1000, False, id="many, death unseen", marks=[pytest.mark.long, pytest.mark.timeout(240)]
        ),
    ],
)
async def test_after_an_outage_of_two_leases_only_a_dead_workers_jobs_run_again(
    harness: Place, workers: Workers, tmp_path: Path, jobs: int, seen: bool
) -> None:
    """The other leases ran out, too, but while nobody could beat."""
    flag = tmp_path / "enough"
    refs = await workers.enqueue("outlast", jobs, queue="patient", until=str(flag), max_attempts=5)
    options = ("--recovery", "1", "--concurrency", str(jobs // 4))
    children = [workers.start(*options, app="patient_app:app") for _ in range(3)]
    # All of them are full: those that come back wait until the others have ended.
    victim = workers.start(*options, app="patient_app:app", before=() if seen else APART)
    await all_begun(workers, jobs, children)
    lost = held_by(workers, children, refs={ref.id for ref in refs})
    assert len(lost) == jobs // 4

    await harness.crash()
    down = time.monotonic()
    await asyncio.to_thread(victim.kill, "family")
    await asyncio.sleep(
        max(0.0, down + 2 * LEASE - time.monotonic())
    )  # the outage itself is what takes the time
    await harness.restart()

    async def told() -> bool:
        of = {counts.queue: counts for counts in await workers.store.count()}["patient"]
        return of.totals.get("crashed", 0) >= len(lost)

    await until_async(told, 60, "the dead worker's leases to be ended", children[0].log)
    # One more lease, in which whoever was to be taken for dead would be.
    await asyncio.sleep(LEASE + 1.0)
    flag.touch()
    found = await workers.finished(90, children[0])

    assert {job.status for job in found} == {Status.COMPLETED}
    assert {job.id for job in found if job.crashes} == lost
    assert {job.crashes for job in found} == {0, 1}
    assert starts(workers) == {ref.id: 2 if ref.id in lost else 1 for ref in refs}
    assert not [job for job in workers.ledger.doubles() if job not in lost]


def held_by(workers: Workers, living: list[Child], refs: set[str]) -> set[str]:
    """The jobs that none of these workers runs."""
    pids = {worker_of(child) for child in living}
    return refs - {run.job for run in workers.ledger.runs() if run.pid in pids}
