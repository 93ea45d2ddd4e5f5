"""Opens what verbs work on, as the settings name it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from unstuck import UnstuckError
from unstuck_memory import settings, settings_file
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.errors import SettingsError, UnstuckMemoryError
from unstuck_memory.graph import Graph
from unstuck_memory.memory import Memory
from unstuck_memory.vectors import Model

T = TypeVar("T")
WORKER = "start unstuck-memory mcp, or unstuck worker unstuck_memory.worker:app"
"""What a person does if nobody makes embeddings."""
LEAVING = 2.0  # seconds that a verb has to clean up after Ctrl-C

_nowhere = logging.NullHandler()


@dataclass(frozen=True)
class Opened:
    """One project of the graph, its queue of embeddings, and what makes these."""

    graph: Graph
    provider: Provider
    jobs: EmbeddingJobs
    memory: Memory


@asynccontextmanager
async def opened(project: str, *, create: bool = False) -> AsyncIterator[Opened]:
    """Open the memory. Only a verb that may ``create`` it makes a graph that is not there, or updates one."""
    found = first_settings() if create else known_settings()
    if not create:
        must_be_there(found)
    provider = settings.provider()
    try:
        async with found.graph() as graph, EmbeddingJobs(graph, provider, found.jobs_at) as jobs:
            if create:
                await graph.migrate()
            yield Opened(graph, provider, jobs, Memory(graph, project, jobs))
    finally:
        await provider.aclose()


def known_settings() -> settings.Settings:
    """Those of the environment and of the settings file."""
    settings_file.apply()
    return settings.load()


def first_settings() -> settings.Settings:
    """The same; the settings file is made if there is none."""
    settings_file.make()
    return known_settings()


def must_be_there(found: settings.Settings) -> None:
    if isinstance(found.graph_at, Path) and not os.path.lexists(found.graph_at):
        raise SettingsError(f"there is no graph at {found.graph_at}: make one with unstuck-memory init")


async def model_of(provider: Provider) -> Model:
    """The provider's model. Whatever goes wrong is one line, without what the server wrote: that may have a key in it."""
    try:
        return await provider.model()
    except (UnstuckError, UnstuckMemoryError):
        raise
    except Exception as error:
        raise UnstuckMemoryError(no_answer(provider, error)) from error


def no_answer(provider: Provider, error: Exception) -> str:
    return f"provider {provider.kind} does not answer: {type(error).__name__}; look at its settings and its server"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it. What goes wrong is raised and printed once: logs would repeat it."""
    logging.getLogger().addHandler(_nowhere)
    return asyncio.run(_until_interrupted(work))


async def _until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    doing = asyncio.ensure_future(work)

    def interrupt() -> None:
        # A thread may wait for a lock for a minute; to leave it is safe, because what it writes is a transaction.
        leaving = threading.Timer(LEAVING, os._exit, (1,))
        leaving.daemon = True
        leaving.start()
        doing.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await doing
    except asyncio.CancelledError:
        raise click.Abort from None
