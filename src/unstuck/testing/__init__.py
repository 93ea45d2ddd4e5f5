"""For tests: of your own tasks (``inline``), and of stores (``Harness`` and the conformance suite)."""

from unstuck.testing.harness import Harness, PostgresHarness, RedisHarness, SQLiteHarness
from unstuck.testing.inline import inline

__all__ = ["Harness", "PostgresHarness", "RedisHarness", "SQLiteHarness", "inline"]
