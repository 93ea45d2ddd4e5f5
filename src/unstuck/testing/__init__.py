"""For tests: of your own tasks (``inline``), and of stores (``Harness`` and the conformance suite)."""

from unstuck.testing.harness import Harness, PostgresHarness, SQLiteHarness
from unstuck.testing.inline import inline

__all__ = ["Harness", "PostgresHarness", "SQLiteHarness", "inline"]
