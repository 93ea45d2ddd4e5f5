"""What the tools of a server work with."""

from __future__ import annotations

from dataclasses import dataclass

from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.failures import Failures
from unstuck_memory.graph import Graph
from unstuck_memory.mcp.answer import USUAL
from unstuck_memory.memory import Memory
from unstuck_memory.search import Search


@dataclass
class Served:
    """One project of one graph, its queue of embeddings, and how much a caller may be answered."""

    graph: Graph
    jobs: EmbeddingJobs
    memory: Memory
    search: Search
    budget: int = USUAL
    worker: str = "none: the server was started with --no-worker"
    """How this server's own worker does, or why there is none."""

    @property
    def failures(self) -> Failures:
        return Failures(self.graph, self.memory.project, self.jobs)
