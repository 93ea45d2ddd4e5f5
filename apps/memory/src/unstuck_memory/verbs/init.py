"""The verb ``unstuck-memory init``."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from unstuck import Jobs, env_text
from unstuck_memory import settings
from unstuck_memory.errors import SettingsError
from unstuck_memory.values import Value
from unstuck_memory.verbs.opened import first_settings, run
from unstuck_memory.verbs.output import json_option, print_json, without_user


class Ready(Value, frozen=True, kw_only=True):
    """What ``init --json`` prints."""

    graph: str
    jobs: str


@click.command()
@click.option("--uri", help="A Neo4j server for the graph: bolt://host:7687; else NEO4J_URI, else a file.")
@click.option("--username", help="With --uri.")
@click.option("--password", help="With --uri; better by NEO4J_PASSWORD.")
@click.option("--database", help="With --uri. [default: neo4j]")
@json_option
def init(
    uri: str | None, username: str | None, password: str | None, database: str | None, *, as_json: bool
) -> None:
    """Create or update the schema of the graph, and that of its job store."""
    found = first_settings()
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
    run(_init(found))
    ready = Ready(graph=str(found.graph_at), jobs=without_user(found.jobs_at))
    if as_json:
        print_json(ready)
        return
    click.echo(f"the graph is ready: {ready.graph}")
    click.echo(f"the job store is ready: {ready.jobs}")


async def _init(found: settings.Settings) -> None:
    async with found.graph() as graph:
        await graph.migrate()
    async with Jobs.open(found.jobs_at, create=True):
        pass
