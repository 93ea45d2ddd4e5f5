"""The Redis store on a real cluster: the suite that every store must pass, and a master that dies."""

from collections.abc import AsyncIterator, Iterator

import pytest
from support.redis_cluster import Cluster, outlives_a_master

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
    await outlives_a_master(cluster, harness, ("one", "two"))
