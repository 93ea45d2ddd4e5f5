"""The PostgreSQL store against the suite that every store must pass, on the oldest and newest server at hand."""

from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres

from unstuck.testing import Harness, PostgresHarness
from unstuck.testing.conformance import *


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[Harness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness
