"""For tests: of your own tasks (``inline``), and of stores (``Harness`` and the conformance suite)."""

from unstuck.testing.harnesses.harness import Harness, grow_old
from unstuck.testing.harnesses.neo4j import Neo4jHarness
from unstuck.testing.harnesses.postgres import PostgresHarness
from unstuck.testing.harnesses.redis import RedisHarness
from unstuck.testing.harnesses.sqlite import SQLiteHarness
from unstuck.testing.inline import Inline, SyncInline, inline

__all__ = [
    "Harness",
    "Inline",
    "Neo4jHarness",
    "PostgresHarness",
    "RedisHarness",
    "SQLiteHarness",
    "SyncInline",
    "grow_old",
    "inline",
]
