"""The Neo4j store against the suite that every store must pass, on a Community server.

Where there is none the part that needs no locks runs on ArcadeDB, and the end of the report says so.
"""

from collections.abc import AsyncIterator

import pytest
from support import arcadedb
from support.neo4j import here

from unstuck.testing import Harness, Neo4jHarness
from unstuck.testing.conformance import *
from unstuck.testing.conformance import machine, races

# Whoever comes first waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if here():
        return str(request.getfixturevalue("neo4j_server").url())
    server: arcadedb.ArcadeDB = request.getfixturevalue("arcadedb_server")
    if request.function.__module__ == races.__name__ or request.function.__name__ in arcadedb.NEED_LOCKS:
        pytest.skip("Neo4j is missing, and ArcadeDB in its place has no locks")
    arcadedb.adapt(monkeypatch)
    return server.url()


@pytest.fixture
async def harness(url: str) -> AsyncIterator[Harness]:
    async with Neo4jHarness(url) as harness:
        yield harness


@pytest.mark.long  # type: ignore[no-redef] # the suite's, which takes as long as a hundred others here
@pytest.mark.timeout(1800)
async def test_a_store_behaves_as_the_reference_model(harness: Harness) -> None:
    await machine.test_a_store_behaves_as_the_reference_model(harness)
