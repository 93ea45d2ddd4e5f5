"""The queue of embeddings: its profile, and its jobs in a Neo4j database of their own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from unstuck import ConfigError, Jobs, QueueOptions, Rate, Unstuck, env_int, env_text, neo4j_url

STORE_VARIABLE = "EMBED_JOB_DATABASE_URI"
RECOVERY_VARIABLE = "EMBED_JOB_RECOVERY_INTERVAL"


def embedding(environ: Mapping[str, str] = os.environ) -> QueueOptions:
    """The options of a queue that calls a provider which counts requests: ``app.queue("embedding", **embedding())``.

    A crash does not count as a failure, and a recovered job is free at once. A worker of this queue starts only
    if ``EMBED_JOB_RETENTION_DAYS`` says how many days finished jobs are kept.
    """
    tokens = env_int(environ, "EMBEDDING_RATE_LIMIT_TOKENS", least=1, most=1_000_000)
    interval = env_int(environ, "EMBEDDING_RATE_LIMIT_INTERVAL", least=100, most=86_400_000)
    return QueueOptions(
        lease=300.0,
        heartbeat=120.0,
        max_crashes=10,
        lapse_backoff=(),
        rate=Rate(tokens or 20, (interval or 60_000) / 1000),
        retention_from="EMBED_JOB_RETENTION_DAYS",
        recovery=recovery_interval(environ),
    )


def recovery_interval(environ: Mapping[str, str]) -> float | None:
    """The seconds between recoveries, from a variable that has them in milliseconds."""
    interval = env_int(environ, RECOVERY_VARIABLE, least=0, most=86_400_000)
    return None if interval is None else interval / 1000


def embed_store(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the store that EMBED_JOB_DATABASE_URI, _USERNAME, _PASSWORD and _NAME name; None without the first."""
    if (uri := env_text(environ, STORE_VARIABLE)) is None:
        return None
    username, password, name = (
        env_text(environ, f"EMBED_JOB_DATABASE_{part}") for part in ("USERNAME", "PASSWORD", "NAME")
    )
    return neo4j_url(uri, username, password, name, what=STORE_VARIABLE)


@asynccontextmanager
async def embed_jobs(environ: Mapping[str, str] = os.environ) -> AsyncIterator[Jobs]:
    """The jobs of that store: ``async with embed_jobs() as jobs: await jobs.release_jobs(ids, owner)``."""
    if (url := embed_store(environ)) is None:
        raise ConfigError(
            f"{STORE_VARIABLE} is not set: it says where embedding jobs are, for example neo4j://host:7687"
        )
    async with Unstuck(url) as app:
        yield await app.jobs()
