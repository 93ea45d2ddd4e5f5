"""What the log line about a failed embedding contains, besides what the engine writes about every failure."""

from __future__ import annotations

import logging
from typing import Any

from msgspec import structs

from unstuck import Category, Context, UnstuckError, classify
from unstuck_memory.embeddings.providers.rows import BAD_VECTORS
from unstuck_memory.values import Entity

log = logging.getLogger("unstuck_memory.embeddings")
SHOWN = 10  # observations; the engine cuts each after 200 characters and hides what looks like a secret
# PERMANENT, but not because of a text: the provider refuses this key or address, or answers nonsense.
_PROVIDERS = {BAD_VECTORS, "http_401", "http_403", "http_404"}


def problem_of(error: BaseException) -> str:
    """Whether to look at the entity or at what is around it: ``data`` or ``infrastructure``."""
    found = classify(error)
    of_data = found.category is Category.PERMANENT and found.code not in _PROVIDERS
    return "data" if of_data else "infrastructure"


def bind_facts(
    job: Context,
    error: BaseException,
    *,
    model: str,
    entity: Entity | None,
    cached: int,
    texts: int,
    rate: Any,
) -> None:
    """Give them to the engine, which writes the line. The observations are all that it contains of the entity's content."""
    facts: dict[str, Any] = {
        "operation": "generate_embedding",
        "problem": problem_of(error),
        "model": model,
        "cache": f"{cached} hits, {texts - cached} misses",
        "rateLimiter": rate,
    }
    if entity is not None:
        facts |= {"entityName": entity.name, "observations": list(entity.observations[:SHOWN])}
    job.bind(**facts)


async def rate_of(job: Context) -> Any:
    """The state of the rate limiter in a form fit for a log."""
    try:
        state = await job.rate()
    except UnstuckError as error:
        return f"not known: {error}"
    return "no limit" if state is None else structs.asdict(state)
