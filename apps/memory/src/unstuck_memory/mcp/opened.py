"""Opens what a server serves, and runs its worker of the embedding queue."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from unstuck import ConfigError, Worker
from unstuck_memory import settings, settings_file
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.mcp.answer import answer_budget
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.tool import Tool
from unstuck_memory.mcp.tools import tools
from unstuck_memory.memory import DEFAULT_PROJECT, Memory
from unstuck_memory.search import Search

logger = logging.getLogger("unstuck_memory.mcp")


@dataclass(frozen=True)
class Options:
    """What a server serves. Everything else comes from the environment and the settings file."""

    project: str = DEFAULT_PROJECT
    tools: Literal["core", "all"] = "all"
    worker: bool = True

    def listed(self, environ: Mapping[str, str] = os.environ) -> Mapping[str, Tool]:
        return tools(self.tools, debug=environ.get("DEBUG") == "true")


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Served]:
    """Open the graph and the queue, made at the first start, and run a worker for the length of a block."""
    try:
        settings_file.make()
    except OSError as error:  # everything but the worker does without
        logger.warning("no settings file could be made: %s", error)
    settings_file.apply()
    found, budget = settings.load(), answer_budget()
    provider = settings.provider()
    try:
        async with found.graph() as graph, EmbeddingJobs(graph, provider, found.jobs_at) as jobs:
            await graph.migrate()
            memory = Memory(graph, options.project, jobs, may_be_empty=True)
            served = Served(graph, jobs, memory, Search(graph, provider, options.project), budget)
            if not options.worker:
                yield served
                return
            async with working(served):
                yield served
    finally:
        await provider.aclose()


@asynccontextmanager
async def working(served: Served) -> AsyncIterator[None]:
    """Run a worker. At the end it gives back at once what it holds."""
    try:
        worker = Worker(served.jobs.app)
    except ConfigError as error:
        served.worker = f"refuses to start: {error}"
        logger.warning("no worker of the embedding queue: %s", error)
        yield
        return
    running = asyncio.create_task(_work(served, worker))
    try:
        yield
    finally:
        worker.stop(at_once=True)
        await asyncio.wait([running])


async def _work(served: Served, worker: Worker) -> None:
    served.worker = "runs"
    try:
        async with served.jobs.repairing():
            await worker.run()
        served.worker = f"halted: {worker.halted}" if worker.halted else "ended"
    except Exception as error:  # tools go on without it
        served.worker = f"failed: {type(error).__name__}: {error}"
        logger.exception("the worker of the embedding queue failed")
