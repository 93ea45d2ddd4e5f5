"""The tool that shows how the memory does."""

from __future__ import annotations

import logging
from typing import Any

from mcp_types import CallToolResult

from unstuck import UnstuckError
from unstuck_memory.errors import UnstuckMemoryError
from unstuck_memory.mcp.answer import Answer
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.tool import READS, tool
from unstuck_memory.mcp.tools.fields import Answered, Arguments
from unstuck_memory.values import Coverage, Size

logger = logging.getLogger("unstuck_memory.mcp")

UNREACHABLE = (UnstuckError, UnstuckMemoryError, OSError)


class Nothing(Arguments, frozen=True, kw_only=True):
    random_string: str | None = None


class Status(Answered, frozen=True, kw_only=True):
    project: str
    entities: int
    relations: int
    embedded: int | None = None
    queue: dict[str, int] | None = None
    health: str
    provider: str
    worker_alive: bool
    problems: list[str]


@tool(
    group="core",
    takes=Nothing,
    answers=Status,
    hints=READS,
    description="""Show how much the memory holds, how many entities are embedded, what the queue does, and what is wrong. Use it when
    a search finds less than you expect.""",
)
async def memory_status(served: Served, _: Nothing) -> CallToolResult:
    problems: list[str] = []
    size = await served.graph.size(served.memory.project)
    coverage = await _coverage(served, size, problems)
    queue, health, workers = await _queue(served, problems)
    if not served.worker.startswith("runs"):
        problems.append(f"this server's worker: {served.worker}")
    missing = coverage.entities - coverage.embedded if coverage else None
    if missing and not workers:
        problems.append(
            f"{missing} entities have no embedding, and no worker is alive: search finds them by keyword only"
        )
    provider = served.jobs.provider
    known: dict[str, Any] = {"embedded": coverage.embedded if coverage else None, "queue": queue}
    answer = Answer(
        served.budget,
        "problems",
        project=served.memory.project,
        entities=size.entities,
        relations=size.relations,
        archived=size.archived,
        health=health,
        provider=provider.kind,
        model=provider.name,
        worker_alive=bool(workers),
        workers=workers,
        **{name: value for name, value in known.items() if value is not None},
    )
    answer.note(
        f"project {served.memory.project}: {size.entities} entities, {size.relations} relations, {size.archived} archived versions"
    )
    answer.note(
        f"embedded: {coverage.embedded if coverage else 'unknown'} of {size.entities}, by {provider.kind}, model {provider.name}"
    )
    counts = "unknown" if queue is None else ", ".join(f"{count} {state}" for state, count in queue.items())
    answer.note(f"queue: {counts}; workers: {workers}; health: {health}")
    truncated = False
    for problem in problems:
        truncated |= not answer.add("problems", problem, f"problem: {problem}")
    return answer.result(truncated=truncated)


async def _coverage(served: Served, size: Size, problems: list[str]) -> Coverage | None:
    if not size.entities:
        return Coverage(entities=0, embedded=0)
    try:
        return await served.memory.coverage()
    except UNREACHABLE as error:
        problems.append(_one_line(error))
    except Exception as error:  # a provider's own errors can be of any kind
        logger.exception("the provider does not say which model it has")
        problems.append(
            f"provider {served.jobs.provider.kind} does not answer: {type(error).__name__}; look at its settings and its server"
        )
    return None


async def _queue(served: Served, problems: list[str]) -> tuple[dict[str, int] | None, str, int]:
    """Counts of all projects' jobs, health, living workers."""
    try:
        counts = await served.jobs.get_queue_status()
        counts["dead"] = dead = await served.jobs.count_dead_letters()
        health = await served.jobs.get_health_status()
    except UNREACHABLE as error:
        problems.append(f"the queue does not answer: {_one_line(error)}")
        return None, "unknown", 0
    if dead:
        problems.append(f"{dead} embedding jobs failed for good: list_failed_embeddings shows why")
    if health.why:
        problems.append(_one_line(health.why))
    return counts, health.status, health.workers


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:500]
