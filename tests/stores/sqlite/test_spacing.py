"""What SQLite keeps of the intervals of keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unstuck.protocol.leases import Recovery
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.spacing import INTERVAL, debounced, throttled

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SQLiteHarness]:
    async with SQLiteHarness(tmp_path) as harness:
        yield harness


async def test_there_is_one_row_a_key_and_a_recovery_deletes_those_that_are_over(
    harness: SQLiteHarness,
) -> None:
    for _ in range(3):
        await harness.store.enqueue([throttled(key="old"), debounced(key="older")])
    await harness.age(INTERVAL + 1)
    await harness.store.enqueue([throttled(key="young")])
    assert len(harness.rows("SELECT key FROM spacing")) == 3

    await harness.store.reclaim(Recovery("reaper", 60.0, 10))

    assert harness.rows("SELECT key FROM spacing") == [("young",)]
