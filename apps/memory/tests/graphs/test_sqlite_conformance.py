"""The graph in a file against the suite that every graph must pass."""

import pytest
from support_memory.conformance import *
from support_memory.places import Place

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(sqlite_place: Place) -> Place:
    return sqlite_place
