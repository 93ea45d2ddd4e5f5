"""Worker processes on PostgreSQL that are killed and frozen at random: every job ends once all the same."""

from collections.abc import AsyncIterator

import pytest
from support.fleet import frozen_past_its_lease, killed_at_random
from support.postgres import Postgres
from support.waiting import until_async
from support.workers import Workers

from unstuck import Status
from unstuck.testing import PostgresHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


@pytest.mark.parametrize(
    ("jobs", "kills"), [(150, 4), pytest.param(900, 25, marks=[pytest.mark.long, pytest.mark.timeout(400)])]
)
async def test_workers_killed_at_random_lose_no_job_and_complete_each_once(
    workers: Workers, jobs: int, kills: int
) -> None:
    await killed_at_random(workers, jobs, kills)


async def test_worker_processes_never_run_one_job_at_the_same_time(workers: Workers) -> None:
    started = [workers.start("--processes", "0") for _ in range(3)]
    for one in started:
        await one.until_line_async("takes", 30)
    await workers.enqueue("step", 400, seconds=0.02)

    async def all_of_them() -> bool:
        """Whether everybody has run a job. Who is late finds some, too."""
        if all(job.status is not Status.PENDING for job in await workers.jobs()):
            await workers.enqueue("step", 10, seconds=0.5)
        return len({run.pid for run in workers.ledger.runs()}) == len(started)

    await until_async(all_of_them, 30, "everybody to take part", started[0].log)
    found = await workers.finished(60, started[0])

    assert {(job.status, job.attempts, job.crashes) for job in found} == {(Status.COMPLETED, 1, 0)}
    assert len(workers.ledger.runs()) == len(found) >= 400
    assert {run.pid for run in workers.ledger.runs()} == {one.pid for one in started}


@pytest.mark.parametrize("over", [True, False], ids=["after its successor", "beside its successor"])
async def test_a_worker_frozen_past_its_lease_is_replaced_and_its_late_outcome_refused(
    workers: Workers, over: bool
) -> None:
    await frozen_past_its_lease(workers, over=over)
