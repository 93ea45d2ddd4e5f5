"""Many queues in one lease: what it costs depends on those that have jobs."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from unstuck.protocol.leases import Share
from unstuck.stores.sqlite.steps import lease
from unstuck.stores.sqlite.writer import Transaction
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, new

pytestmark = pytest.mark.anyio
IDLE = [f"idle-{number:04}" for number in range(1000)]


@pytest.fixture
def connection(harness: SQLiteHarness, tmp_path: Path) -> Iterator[apsw.Connection]:
    [file] = tmp_path.glob("*.db")
    connection = apsw.Connection(str(file))
    yield connection
    connection.close()


def work(harness: SQLiteHarness, connection: apsw.Connection, queues: dict[str, Share], limit: int) -> int:
    """How many instructions of SQLite's machine a lease takes; what it changed is undone."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    transaction = Transaction(connection, harness.store._sql)  # type: ignore[attr-defined]
    connection.execute("BEGIN IMMEDIATE")
    connection.set_progress_handler(step, 1)
    try:
        assert len(lease(transaction, queues, limit, "w", all_events=False)) == limit
    finally:
        connection.set_progress_handler(None)
        connection.execute("ROLLBACK")
    return count


async def test_a_thousand_idle_queues_cost_a_lease_next_to_nothing(
    harness: SQLiteHarness, connection: apsw.Connection
) -> None:
    await enqueued(harness.store, 500)
    await enqueued(harness.store, 500, delay=3600.0)
    one = {"q": Share(60.0, 10)}

    alone = work(harness, connection, one, 10)
    beside = work(harness, connection, {name: Share(60.0, 10) for name in IDLE} | one, 10)

    assert alone > 1000
    assert beside <= 1.2 * alone


async def test_jobs_of_a_thousand_other_queues_cost_a_lease_no_more_than_its_own_queues(
    harness: SQLiteHarness, connection: apsw.Connection
) -> None:
    """The search for queues with jobs ends as soon as it costs more than to look at each."""
    await enqueued(harness.store, 500)
    asked = {name: Share(60.0, 10) for name in ["q", *IDLE[:10]]}
    alone = work(harness, connection, asked, 10)
    await harness.store.enqueue([new(f"other-{number}") for number in range(1000)])

    assert work(harness, connection, asked, 10) <= 3 * alone
