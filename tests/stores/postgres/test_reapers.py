"""Twenty reapers in four processes over fifty thousand leases that ran out: each is ended once."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.postgres import Postgres
from support.processes import Child
from support.waiting import until_async

from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import counts, enqueued, leased

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

_REAPERS = """
import asyncio, json, sys
from contextlib import AsyncExitStack
from unstuck import open_store
from unstuck.recovery.reaper import Reaper

async def main(url, count):
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(url)) for _ in range(int(count))]
        done = await asyncio.gather(*(Reaper(store).recover() for store in stores))
        print(json.dumps([outcome.lease.id for one in done for outcome in one]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


async def expired(harness: PostgresHarness, jobs: int) -> set[str]:
    """The ids of jobs whose leases have run out for real: other processes know nothing of a test that ages data."""
    ids: set[str] = set()
    for _ in range(0, jobs, 5000):
        some = min(jobs, 5000)
        ids |= {ref.id for ref in await enqueued(harness.store, some, max_attempts=3)}
        assert len(await leased(harness.store, some, seconds=0.2)) == some

    async def over() -> bool:
        return (await counts(harness.store)).expired == jobs

    await until_async(over, 30, "the leases to run out")
    return ids


@pytest.mark.parametrize(
    ("jobs", "processes"),
    [(5_000, 2), pytest.param(50_000, 4, marks=[pytest.mark.long, pytest.mark.timeout(400)])],
)
async def test_twenty_reapers_end_each_lease_once(
    harness: PostgresHarness, tmp_path: Path, jobs: int, processes: int
) -> None:
    ids = await expired(harness, jobs)
    argv = [sys.executable, "-c", _REAPERS, harness.url, str(20 // processes)]
    logs = [tmp_path / f"reapers-{number}.log" for number in range(processes)]
    reapers = [Child(argv, log) for log in logs]
    try:
        codes = [await asyncio.to_thread(reaper.wait, 300) for reaper in reapers]
    finally:
        for reaper in reapers:
            reaper.close()

    assert codes == [0] * processes, logs[0].read_text()[-2000:]
    ended = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    assert sum(map(len, ended)) == jobs
    assert {id_ for one in ended for id_ in one} == ids
    of = await counts(harness.store)
    assert (of.totals["reaper.requeues"], of.totals["crashed"], of.pending) == (jobs, jobs, jobs)
    kinds = await harness.rows(
        "SELECT status, crashes, attempt_count, count(*) FROM {schema}.jobs GROUP BY 1, 2, 3"
    )
    assert kinds == [("pending", 1, 1, jobs)]
    told = await harness.rows(
        "SELECT type, count(DISTINCT job_id), count(*) FROM {schema}.job_events GROUP BY 1"
    )
    assert told == [("reaper:requeued", jobs, jobs)]
