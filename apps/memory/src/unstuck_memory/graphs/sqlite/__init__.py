"""A graph in one SQLite file."""

from unstuck_memory.graphs.sqlite.graph import SqliteGraph

__all__ = ["SqliteGraph"]
