"""The graph in Neo4j against the suite that every graph must pass."""

import pytest
from support_memory.conformance import *
from support_memory.places import Place

# The first of them waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def place(neo4j_place: Place) -> Place:
    return neo4j_place
