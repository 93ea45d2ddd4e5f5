"""For tests: of your own tasks (``inline``), and of stores (``Harness`` and the conformance suite)."""

from unstuck.testing.harness import Harness, PostgresHarness, RedisHarness, SQLiteHarness, grow_old
from unstuck.testing.inline import Inline, inline
from unstuck.testing.neo4j_harness import Neo4jHarness

__all__ = [
    "Harness",
    "Inline",
    "Neo4jHarness",
    "PostgresHarness",
    "RedisHarness",
    "SQLiteHarness",
    "grow_old",
    "inline",
]
