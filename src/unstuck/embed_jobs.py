"""embed_jobs(): the embedding queue in its own database, with the verbs that its operators know."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from unstuck.environ import embed_store
from unstuck.errors import ConfigError
from unstuck.jobs import Jobs
from unstuck.stores import open_store


@asynccontextmanager
async def embed_jobs(environ: Mapping[str, str] = os.environ) -> AsyncIterator[Jobs]:
    """``async with embed_jobs() as jobs: await jobs.release_jobs(ids, owner)``.

    Where the database is, EMBED_JOB_DATABASE_URI, _USERNAME, _PASSWORD and _NAME say.
    """
    if (url := embed_store(environ)) is None:
        raise ConfigError(
            "EMBED_JOB_DATABASE_URI is not set: it says where embedding jobs are, neo4j://host:7687"
        )
    async with open_store(url) as store:
        await store.migrate()
        yield Jobs(store)
