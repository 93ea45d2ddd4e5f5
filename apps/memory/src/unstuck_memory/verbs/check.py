"""The verb ``unstuck-memory check``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from unstuck import ConfigError, Jobs, UnstuckError, env_int, env_text
from unstuck_memory import settings, settings_file
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.queue import QUEUE
from unstuck_memory.errors import UnstuckMemoryError
from unstuck_memory.values import Value
from unstuck_memory.verbs.opened import known_settings, model_of, must_be_there, no_answer, opened, run
from unstuck_memory.verbs.output import (
    counted,
    json_option,
    line,
    print_json,
    project_option,
    without_secrets,
    without_user,
)

PATIENCE = 30.0  # seconds that a provider has for one text
DAYS = "EMBED_JOB_RETENTION_DAYS"


class Tested(Value, frozen=True, kw_only=True):
    """``found`` is what works; or what does not, and the next step."""

    what: str
    ok: bool
    found: str


@click.command()
@project_option
@json_option
def check(project: str, *, as_json: bool) -> None:
    """Test the graph, the queue and the provider. The exit code is 1 if one of them does not work."""
    found = run(_all(project))
    if as_json:
        print_json(found)
    else:
        for one in found:
            click.echo(f"{one.what:8}  {'ok' if one.ok else 'FAILED':6}  {one.found}")
    if not all(one.ok for one in found):
        sys.exit(1)


async def _all(project: str) -> list[Tested]:
    found = known_settings()
    return [
        await _tested("graph", lambda: _graph(found, project)),
        await _tested("queue", lambda: _queue(found)),
        await _tested("provider", _provider),
    ]


async def _tested(what: str, test: Callable[[], Coroutine[Any, Any, str]]) -> Tested:
    try:
        return Tested(what=what, ok=True, found=line(await test()))
    except (UnstuckError, UnstuckMemoryError, OSError) as error:
        return Tested(what=what, ok=False, found=without_secrets(line(str(error))))


async def _graph(found: settings.Settings, project: str) -> str:
    must_be_there(found)
    async with opened(project) as memory:
        size = await memory.memory.size()
    entities = counted(size.entities, "entity", "entities")
    relations = counted(size.relations, "relation", "relations")
    return f"{found.graph_at!s}: {entities} and {relations} in project {project}"


async def _queue(found: settings.Settings) -> str:
    at = without_user(found.jobs_at)
    try:
        async with Jobs.open(found.jobs_at) as jobs:
            health = await jobs.get_health_status(None if await jobs.strange(QUEUE) else QUEUE)
    except UnstuckError as error:
        raise UnstuckMemoryError(
            f"{at}: {str(error).rstrip('.')}; start its server, correct its settings, or run unstuck-memory init if it is new"
        ) from error
    if env_text(os.environ, DAYS) is None:
        raise ConfigError(
            f"{DAYS} is not set: workers refuse to start; set it to 7 to 30 days in {settings.data_folder() / settings_file.NAME}, "
            f"for example {DAYS} = 14, or in the environment"
        )
    env_int(os.environ, DAYS, least=7, most=30)
    if health.status == "CRITICAL":
        raise UnstuckMemoryError(f"{at}: CRITICAL, {health.why}")
    workers = counted(health.workers, "worker", "workers")
    why = f", {health.why}" if health.why else ""
    return f"{at}: {workers}, {health.status}{why}"


async def _provider() -> str:
    provider = settings.provider()
    try:
        model = await model_of(provider)
        await _embedded(provider)
    finally:
        await provider.aclose()
    return f"{provider.kind}: model {model.name} makes vectors of {model.dimension} numbers"


async def _embedded(provider: Provider) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await provider.embed(["Does this provider work?"])
    except (UnstuckError, UnstuckMemoryError):
        raise
    except Exception as error:  # whatever its client raises
        raise UnstuckMemoryError(no_answer(provider, error)) from error
