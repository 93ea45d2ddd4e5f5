"""The Redis store against the suite that every store must pass, on Redis 7 and on Valkey 9."""

from collections.abc import AsyncIterator

import pytest
from support.redis import Redis

from unstuck.testing import Harness, RedisHarness
from unstuck.testing.conformance import *


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[Harness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness
