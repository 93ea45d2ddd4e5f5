"""The ``unstuck-memory`` command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from unstuck import ConfigError, Jobs, UnstuckError, env_text
from unstuck_memory import settings
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.errors import InvalidInput, NotFound, SettingsError, UnstuckMemoryError
from unstuck_memory.memory import DEFAULT_PROJECT, Memory
from unstuck_memory.values import Coverage, Value
from unstuck_memory.vectors import Model

T = TypeVar("T")
WRONG_INPUT = (ConfigError, InvalidInput, NotFound, SettingsError)


class Command(click.Group):
    """Wrong input is one line and exit code 2; anything else of ours is one line and exit code 1."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            sys.exit(super().main(*args, **kwargs | {"standalone_mode": False}) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except (UnstuckError, UnstuckMemoryError) as error:
            _fail(str(error), 2 if isinstance(error, WRONG_INPUT) else 1)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
        except click.Abort:
            sys.exit(1)


@click.group(cls=Command)
def main() -> None:
    """A knowledge graph whose vectors never go missing."""


@main.command()
@click.option("--uri", help="A Neo4j server for the graph: bolt://host:7687; else NEO4J_URI, else a file.")
@click.option("--username", help="With --uri.")
@click.option("--password", help="With --uri; better by NEO4J_PASSWORD.")
@click.option("--database", help="With --uri. [default: neo4j]")
def init(uri: str | None, username: str | None, password: str | None, database: str | None) -> None:
    """Create or update the schema of the graph, and that of its job store."""
    found = settings.load()
    if uri is not None:
        given = settings.neo4j_database(
            uri,
            username or env_text(os.environ, "NEO4J_USERNAME"),
            password or env_text(os.environ, "NEO4J_PASSWORD"),
            database or env_text(os.environ, "NEO4J_DATABASE"),
            what="--uri",
        )
        found = replace(found, graph_at=given)
    elif username or password or database:
        raise SettingsError(
            "--username, --password and --database belong to --uri: give the server's address, too"
        )
    _run(_init(found))
    click.echo(f"the graph is ready: {found.graph_at!s}")
    click.echo(f"the job store is ready: {without_user(found.jobs_at)}")


async def _init(found: settings.Settings) -> None:
    async with found.graph() as graph:
        await graph.migrate()
    async with Jobs.open(found.jobs_at, create=True):
        pass


class Status(Value, frozen=True, kw_only=True):
    """What ``status --json`` prints. ``missing``: some entity of any project has no vectors of the model."""

    graph: str
    jobs: str
    provider: str
    model: str
    project: str
    coverage: Coverage
    missing: bool
    queue: dict[str, int]
    dead_letters: int
    workers: int
    health: str
    why: str


@main.command()
@click.option("--project", default=DEFAULT_PROJECT, show_default=True, help="Whose coverage is shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(project: str, *, as_json: bool) -> None:
    """Show how many entities have their embeddings, and how their jobs do.

    The exit code is 1 if embeddings are missing and no worker is there to make them.
    """
    found = _run(_status(settings.load(), project))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for line in _lines(found):
            click.echo(line)
    if found.missing and not found.workers:
        sys.exit(1)


async def _status(found: settings.Settings, project: str) -> Status:
    if isinstance(found.graph_at, Path) and not found.graph_at.exists():
        raise SettingsError(f"there is no graph at {found.graph_at}: make one with unstuck-memory init")
    provider = settings.provider()
    async with (
        Jobs.open(found.jobs_at),  # which makes no store that is not there
        found.graph() as graph,
        EmbeddingJobs(graph, provider, found.jobs_at) as jobs,
    ):
        model = await _model(provider)
        coverage = await Memory(graph, project, jobs).coverage()
        missing = await graph.without_embeddings(model, limit=1)
        health = await jobs.get_health_status()
        return Status(
            graph=str(found.graph_at),
            jobs=without_user(found.jobs_at),
            provider=provider.kind,
            model=model.name,
            project=project,
            coverage=coverage,
            missing=bool(missing),
            queue=await jobs.get_queue_status(),
            dead_letters=await jobs.count_dead_letters(),
            workers=health.workers,
            health=health.status,
            why=health.why,
        )


async def _model(provider: Provider) -> Model:
    try:
        return await provider.model()
    except (UnstuckError, UnstuckMemoryError):
        raise
    except Exception as error:
        raise UnstuckMemoryError(
            f"provider {provider.kind} does not answer: {type(error).__name__}; look at its settings and its server"
        ) from error
    finally:
        await provider.aclose()


def _lines(found: Status) -> list[str]:
    covered = found.coverage
    share = f"{covered.embedded / covered.entities:.0%}" if covered.entities else "none there"
    queue = ", ".join(f"{count} {state}" for state, count in found.queue.items())
    lines = [
        f"graph      {found.graph}",
        f"jobs       {found.jobs}",
        f"provider   {found.provider}, model {found.model}",
        f"project    {found.project}: {covered.embedded} of {covered.entities} entities have embeddings ({share})",
        f"queue      {queue}; {found.dead_letters} dead letters",
        f"workers    {found.workers}, {found.health}{f': {found.why}' if found.why else ''}",
    ]
    if found.dead_letters:
        lines.append("dead letters: unstuck dead --queue embedding lists them, unstuck retry puts them back")
    if found.missing and not found.workers:
        lines.append(
            "embeddings are missing and no worker runs: start unstuck worker unstuck_memory.worker:app"
        )
    return lines


def without_user(url: str) -> str:
    """A store's URL without what may be secret in it."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest if scheme == 'sqlite' else rest.rpartition('@')[2]}"


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _fail(message: str, code: int) -> None:
    click.echo(f"unstuck-memory: {' '.join(message.split())}", err=True)
    sys.exit(code)
