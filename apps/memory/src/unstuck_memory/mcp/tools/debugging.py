"""Tools that are listed only with DEBUG=true."""

from __future__ import annotations

import os
from typing import Any

from mcp_types import CallToolResult

from unstuck_memory.mcp.answer import Answer
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import named
from unstuck_memory.mcp.tool import READS, tool
from unstuck_memory.mcp.tools.fields import Answered
from unstuck_memory.mcp.tools.status import Nothing

VARIABLES = (
    "DEBUG", "EMBED_JOB_DATABASE_URI", "EMBED_JOB_RECOVERY_INTERVAL", "EMBED_JOB_RETENTION_DAYS", "EMBEDDING_RATE_LIMIT_INTERVAL",
    "EMBEDDING_RATE_LIMIT_TOKENS", "NEO4J_DATABASE", "NEO4J_PASSWORD", "NEO4J_URI", "NEO4J_USERNAME", "OPENAI_API_KEY",
    "OPENAI_BASE_URL", "OPENAI_EMBEDDING_MODEL", "UNSTUCK_MEMORY_ANSWER", "UNSTUCK_MEMORY_EMBEDDINGS", "UNSTUCK_MEMORY_JOBS",
    "UNSTUCK_MEMORY_TOKEN", "XDG_DATA_HOME",
)  # fmt: skip
SAMPLES = 3


class Config(Answered, frozen=True, kw_only=True):
    storage_type: str
    provider: str
    embedding_model: str
    openai_api_key_present: bool
    entities_with_embeddings: int
    pending_embedding_jobs: int
    environment_variables: list[str]


@tool(
    group="debug",
    takes=Nothing,
    answers=Config,
    hints=READS,
    description="Show how embeddings are configured. Use it to find out which settings a server has.",
)
async def debug_embedding_config(served: Served, _: Nothing) -> CallToolResult:
    model = await served.jobs.provider.model()
    embedded = (await served.graph.coverage(served.memory.project, model)).embedded
    pending = (await served.jobs.get_queue_status())["pending"]
    answer = Answer(
        served.budget,
        "environment_variables",
        storage_type=type(served.graph).__name__.removesuffix("Graph").lower(),
        provider=served.jobs.provider.kind,
        embedding_model=model.name,
        dimensions=model.dimension,
        openai_api_key_present="OPENAI_API_KEY" in os.environ,
        entities_with_embeddings=embedded,
        pending_embedding_jobs=pending,
    )
    answer.note(f"model {model.name} of {served.jobs.provider.kind}, {model.dimension} dimensions")
    answer.note(f"{embedded} entities have embeddings, {pending} jobs are pending")
    for name in VARIABLES:
        if name in os.environ and not answer.add("environment_variables", name, f"set: {name}"):
            return answer.result(truncated=True)
    return answer.result()


class Diagnosis(Answered, frozen=True, kw_only=True):
    entities: int
    embedded: int
    samples: list[dict[str, Any]]


@tool(
    group="debug",
    takes=Nothing,
    answers=Diagnosis,
    hints=READS,
    description="Search for stored entities by their own vectors. Use it to find out whether vector search works.",
)
async def diagnose_vector_search(served: Served, _: Nothing) -> CallToolResult:
    coverage = await served.memory.coverage()
    answer = Answer(served.budget, "samples", entities=coverage.entities, embedded=coverage.embedded)
    answer.note(f"{coverage.embedded} of {coverage.entities} entities are embedded")
    page = await served.memory.read_graph(limit=SAMPLES)
    truncated = False
    for entity in page.entities:
        if (embedding := await served.memory.get_entity_embedding(entity.name)) is None:
            continue
        hits = await served.graph.nearest(
            served.memory.project, embedding.model, embedding.chunks[0].vector, SAMPLES
        )
        at = next((rank for rank, hit in enumerate(hits, 1) if hit.uid == entity.uid), None)
        value = {"name": entity.name, "vectors": len(embedding.chunks), "rankOfItself": at}
        found = "is not found by its own vector" if at is None else f"is found by its own vector at rank {at}"
        truncated |= not answer.add("samples", value, f"{named(entity.name)} {found}")
    return answer.result(truncated=truncated)
