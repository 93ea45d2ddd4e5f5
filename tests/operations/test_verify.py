"""verify names each rule that was broken: by somebody who edits the database, past its own checks."""

import pytest

from unstuck.operations.verify import broken_rules
from unstuck.protocol.outcome import completed, released
from unstuck.protocol.store import Store
from unstuck.testing import PostgresHarness, SQLiteHarness
from unstuck.testing.conformance.given import enqueued, one_leased

pytestmark = pytest.mark.anyio

# One job waits, one runs and one is completed.
BROKEN = {
    "a state is one of four": "UPDATE {jobs} SET status = 'lost', finished_at = NULL WHERE status = 'completed'",
    "a processing job has an owner and a fence": "UPDATE {jobs} SET fence = 0 WHERE status = 'processing'",
    "only a processing job has an owner or a lease": "UPDATE {jobs} SET {owner} = 'w' WHERE status = 'pending'",
    "finished means finished_at, and nothing else does": (
        "UPDATE {jobs} SET finished_at = NULL WHERE status = 'completed'"
    ),
    "only a job that waits has a place in line": "UPDATE {jobs} SET rank = {run_at} WHERE status = 'processing'",
    "a place in line is that of its time and priority": "UPDATE {jobs} SET priority = 9 WHERE status = 'pending'",
    "crashes are attempts": "UPDATE {jobs} SET crashes = 5",
    "attempts stay within their budget": "UPDATE {jobs} SET {attempts} = 99",
    "no lease was ended that was not granted": "UPDATE {jobs} SET settled_fence = fence + 1",
    "a failed job says why": "UPDATE {jobs} SET status = 'failed' WHERE status = 'completed'",
    "events die with their job": "DELETE FROM {jobs} WHERE status = 'pending'",
}
ON_SQLITE = {"jobs": "job", "owner": "owner", "run_at": "run_at", "attempts": "attempts"}
ON_POSTGRES = {
    "jobs": "{schema}.jobs", "owner": "locked_by", "run_at": "next_earliest_run_at", "attempts": "attempt_count",
}  # fmt: skip


async def in_use(store: Store) -> None:
    done = await one_leased(store)
    waiting = await one_leased(store)
    await one_leased(store)
    await store.settle([completed(done.lease), released(waiting.lease)])
    assert await broken_rules(store) == []


async def rules(store: Store) -> set[str]:
    return {told.partition(":")[0] for told in await broken_rules(store)}


@pytest.mark.parametrize("rule", BROKEN)
async def test_verify_names_a_broken_rule_on_sqlite(harness: SQLiteHarness, rule: str) -> None:
    await in_use(harness.store)
    harness.rows(f"PRAGMA ignore_check_constraints = 1; {BROKEN[rule].format(**ON_SQLITE)}")

    # Where the table's own checks forbid it, too, SQLite calls the file damaged.
    assert await rules(harness.store) - {"the file is damaged"} == {rule}


@pytest.mark.parametrize("column", ["payload", "progress", "result", "error"])
async def test_verify_names_what_is_no_json_on_sqlite(harness: SQLiteHarness, column: str) -> None:
    await enqueued(harness.store)
    harness.rows(f"UPDATE job SET {column} = '{{oops'")

    assert await rules(harness.store) == {"payload, progress, result and error are JSON"}


@pytest.mark.parametrize("rule", BROKEN)
async def test_verify_names_a_broken_rule_on_postgresql(on_postgres: PostgresHarness, rule: str) -> None:
    await in_use(on_postgres.store)
    await on_postgres.rows(
        "ALTER TABLE {schema}.jobs DROP CONSTRAINT jobs_state, DROP CONSTRAINT jobs_crashes"
    )
    await on_postgres.rows(BROKEN[rule].format(**ON_POSTGRES))

    assert await rules(on_postgres.store) == {rule}
