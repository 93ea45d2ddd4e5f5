"""Whose own clock is wrong recovers by the server's: what it says has ended, and nothing else."""

import asyncio
import subprocess
import sys

import pytest
from support.waiting import until_async

from unstuck.protocol.job import Status
from unstuck.testing import Harness, Neo4jHarness, PostgresHarness, RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SERVERS = {
    "pg15": PostgresHarness,
    "redis7": RedisHarness,
    "neo4j_server": Neo4jHarness,
}
# A process of its own, whose Python is wrong about the time.
REAPER = """
import asyncio, json, sys, time
from unstuck import Reaper, open_store

url, ahead, right, right_ns = sys.argv[1], float(sys.argv[2]), time.time, time.time_ns
time.time, time.time_ns = lambda: right() + ahead, lambda: right_ns() + round(ahead * 1e9)

async def main():
    async with open_store(url) as store:
        print(json.dumps([outcome.lease.id for outcome in await Reaper(store).recover()]))

asyncio.run(main())
"""


@pytest.mark.accepts("REC-063")
@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
@pytest.mark.parametrize("server", SERVERS)
async def test_a_lease_ends_by_the_clock_of_the_server(
    request: pytest.FixtureRequest, server: str, ahead: float
) -> None:
    url = request.getfixturevalue(server).url()
    async with SERVERS[server](url) as harness:
        # What was leased in a server's first moments is not held against its holder, and Redis counts whole seconds.
        await until_async(lambda: up(harness), 10, "the server to have been up for a while")
        lost = await one_leased(harness.store, seconds=0.5)
        live = await one_leased(harness.store, seconds=600.0)
        [waiting] = await enqueued(harness.store)
        assert lost.lease_until is not None
        await until_async(lambda: ended(harness, lost.lease_until), 10, "its lease to end")

        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", REAPER, harness.url, str(ahead)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

        assert (ran.returncode, ran.stdout.split()) == (0, [f'["{lost.id}"]']), ran.stderr
        assert (await look(harness.store, lost.ref)).status is Status.PENDING
        assert await look(harness.store, live.ref) == live
        assert (await look(harness.store, waiting)).fence == 0
        assert {job.ref for job in await leased(harness.store, 9)} == {lost.ref, waiting}


async def ended(harness: Harness, end: object) -> bool:
    return (await harness.store.clock()).now > end  # type: ignore[operator]


async def up(harness: Harness) -> bool:
    return (await harness.store.clock()).uptime >= 2.0
