"""Tools about embeddings: how far they are, what failed, and what can be done."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from mcp_types import CallToolResult
from msgspec import Meta, to_builtins

from unstuck import Enqueued, UnstuckError
from unstuck_memory import checks, cursors
from unstuck_memory.errors import NotFound, UnstuckMemoryError
from unstuck_memory.mcp.answer import Answer, AnswerTooSmall
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import moment, named
from unstuck_memory.mcp.tool import ADDS, READS, STATES, tool
from unstuck_memory.mcp.tools.fields import Answered, Arguments, Bounded, Cursor, Limit
from unstuck_memory.values import Entity

logger = logging.getLogger("unstuck_memory.mcp")

DEFAULT_LIMIT = 10
UNREACHABLE = (UnstuckError, UnstuckMemoryError, OSError)


class EntityEmbedding(Arguments, frozen=True, kw_only=True):
    entity_name: str
    cursor: Cursor = None


class Vector(Bounded, frozen=True, kw_only=True):
    entityName: str  # noqa: N815
    model: str
    dimensions: int
    lastUpdated: int  # noqa: N815
    embedding: list[float]


@tool(
    takes=EntityEmbedding,
    answers=Vector,
    hints=READS,
    description="Read the vector of an entity's whole text. Use it to debug; a search needs no vectors from you.",
)
async def get_entity_embedding(served: Served, given: EntityEmbedding) -> CallToolResult:
    entity = await _entity(served, given.entity_name)
    found = await served.memory.get_entity_embedding(entity.name)
    chunk = None if found is None else next((each for each in found.chunks if each.observation is None), None)
    if found is None or chunk is None:
        raise NotFound(
            f"entity {entity.name!r} has no embedding yet: version {entity.version} must be embedded; memory_status shows how the "
            "queue does, force_generate_embedding adds its job"
        )
    question = ["get_entity_embedding", entity.uid, found.version]
    start = cursors.read(given.cursor, int, *question) or 0
    answer = Answer(
        served.budget,
        "embedding",
        cursor=60,
        entityName=entity.name,
        model=found.model.name,
        dimensions=found.model.dimension,
        lastUpdated=entity.updated_at,
        vectors=len(found.chunks),
    )
    answer.note(
        f"{named(entity.name)}: {found.model.dimension} numbers by {found.model.name}; the entity has {len(found.chunks)} vectors"
    )
    done = start
    for number in chunk.vector[start:]:
        if not answer.add("embedding", float(str(number))):  # as short as float32 can be
            break
        done += 1
    if done == len(chunk.vector):
        return answer.result()
    if done == start:
        raise AnswerTooSmall(served.budget)
    return answer.result(next_cursor=cursors.made(done, *question))


class ForceEmbedding(Arguments, frozen=True, kw_only=True):
    entity_name: str | None = None
    limit: Annotated[int, Meta(description="1 to 1000, default 10")] | None = None


class Forced(Answered, frozen=True, kw_only=True):
    success: bool
    mode: str
    jobs: list[dict[str, str]]
    discovered: int = 0
    queued: int = 0
    newly_scheduled: int = 0


@tool(
    takes=ForceEmbedding,
    answers=Forced,
    hints=STATES,
    description="""Queue the embedding of one entity by its name; or, without a name, of up to limit entities that have none. Use it when
    memory_status shows that embeddings are missing.""",
)
async def force_generate_embedding(served: Served, given: ForceEmbedding) -> CallToolResult:
    if given.entity_name is not None and given.entity_name.strip():
        return await _force_one(served, given.entity_name)
    limit = DEFAULT_LIMIT if given.limit is None else checks.limit(given.limit)
    return await _force_missing(served, limit)


async def _force_one(served: Served, name: str) -> CallToolResult:
    entity = await _entity(served, name)
    [job] = await served.jobs.schedule([entity], again=True)
    answer = Answer(served.budget, "jobs", success=True, mode="specific", entity=entity.name, job_id=job.id)
    text = f"{_state(job)}: the embedding of {named(entity.name)}, version {entity.version}, job {job.id}"
    return answer.result(truncated=not answer.add("jobs", _job(entity, job), text))


async def _force_missing(served: Served, limit: int) -> CallToolResult:
    entities = await served.memory.get_entities_without_embeddings(limit)
    jobs = await served.jobs.schedule(entities, again=True)
    new = sum(job.created for job in jobs)
    answer = Answer(
        served.budget,
        "jobs",
        success=True,
        mode="batch",
        limit=limit,
        discovered=len(entities),
        queued=len(jobs),
        newly_scheduled=new,
        failed=0,
    )
    answer.note(
        f"discovered {len(entities)} entities without embeddings (limit {limit}), queued {len(jobs)}, of which {new} were not queued before"
        if entities
        else "discovered 0: all entities have their embeddings"
    )
    for entity, job in zip(entities, jobs, strict=True):
        if not answer.add("jobs", _job(entity, job), f"{_state(job)}: {named(entity.name)}"):
            return answer.result(truncated=True)
    return answer.result()


def _job(entity: Entity, job: Enqueued) -> dict[str, str]:
    return {"entity": entity.name, "jobId": job.id, "status": _state(job)}


def _state(job: Enqueued) -> str:
    return "scheduled" if job.created else "already queued"


async def _entity(served: Served, name: str) -> Entity:
    if (entity := await served.memory.get_entity(name)) is None:
        raise NotFound(f"there is no entity {name!r}: one that exists is needed; search for it, or create it")
    return entity


class ListFailed(Arguments, frozen=True, kw_only=True):
    limit: Limit = None
    cursor: Cursor = None


class Failed(Bounded, frozen=True, kw_only=True):
    failures: list[dict[str, Any]]


@tool(
    takes=ListFailed,
    answers=Failed,
    hints=READS,
    description="List entities whose embedding failed for good, and why. Use it when memory_status shows failures.",
)
async def list_failed_embeddings(served: Served, given: ListFailed) -> CallToolResult:
    question = ["list_failed_embeddings"]
    after = cursors.read(given.cursor, str, *question)
    found, more = await served.failures.found(given.limit or 50, after)
    answer = Answer(served.budget, "failures", cursor=120)
    if not found:
        answer.note("no embedding has failed for good")
    done = None
    for failed in found:
        at = "" if failed.failed_at is None else f", {moment(int(failed.failed_at.timestamp() * 1000))}"
        text = f"{named(failed.name)} (version {failed.version}): {failed.category} {failed.code}, {failed.error}{at}"
        if not answer.add("failures", to_builtins(failed), text):
            more = True
            break
        done = failed.job_id
    if not more:
        return answer.result()
    if done is None:
        raise AnswerTooSmall(served.budget)
    return answer.result(next_cursor=cursors.made(done, *question))


class RetryFailed(Arguments, frozen=True, kw_only=True):
    names: Annotated[list[str], Meta(description="only these entities")] | None = None


class Retried(Answered, frozen=True, kw_only=True):
    retried: int
    names: list[str]


@tool(
    takes=RetryFailed,
    answers=Retried,
    hints=ADDS,
    description="""Queue embeddings that failed for good once more, with fresh attempts. Use it when the cause is gone, for example a key
    or a server that was missing.""",
)
async def retry_failed_embeddings(served: Served, given: RetryFailed) -> CallToolResult:
    names = None if given.names is None else checks.names("names", given.names)
    retried = await served.failures.retry(names)
    answer = Answer(served.budget, "names", retried=len(retried))
    answer.note(f"{len(retried)} embeddings are queued once more")
    for name in retried:
        if not answer.add("names", name, named(name)):
            return answer.result(truncated=True)
    return answer.result()
