"""The Redis store on a real cluster: the suite that every store must pass, and a master that dies."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.redis_cluster import Cluster
from support.waiting import until_async
from support.work import at_work

from unstuck import StoreUnavailable, Unstuck
from unstuck.testing import RedisHarness
from unstuck.testing.conformance import *


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(
    params=[pytest.param(False, marks=pytest.mark.long), pytest.param(True, marks=pytest.mark.long)],
    ids=["one-slot", "spread"],
)
async def harness(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(cluster.url, cluster=True, spread=request.param) as harness:
        yield harness


async def test_a_worker_consumes_again_when_another_master_took_over(
    cluster: Cluster, harness: RedisHarness
) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue="one")
        async def first(n: int) -> int:
            return n

        @app.task(queue="two")
        async def second(n: int) -> int:
            return n

        async with at_work(app):
            assert await (await first.enqueue(1)).result(10) == 1
            assert await (await second.enqueue(2)).result(10) == 2
            dead = cluster.master_of(harness.base("one"))
            await asyncio.to_thread(dead.kill9)

            async def again() -> int:
                try:
                    return await (await first.enqueue(3)).result(5)
                except StoreUnavailable:
                    return 0

            assert await until_async(again, 60, "a job to be done again") == 3
            assert await (await second.enqueue(4)).result(10) == 4
            await asyncio.to_thread(dead.start)
            await until_async(cluster.complete, 60, "the cluster to be complete again")
