"""The embedded store against the suite that every store must pass."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unstuck.testing import Harness, SQLiteHarness
from unstuck.testing.conformance import *


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with SQLiteHarness(tmp_path) as harness:
        yield harness
