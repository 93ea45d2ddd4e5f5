"""The Neo4j store against the suite that every store must pass, on a Community server."""

from collections.abc import AsyncIterator

import pytest
from support.neo4j import Neo4j

from unstuck.testing import Harness, Neo4jHarness
from unstuck.testing.conformance import *


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Harness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness
