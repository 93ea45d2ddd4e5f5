"""The verb ``unstuck-memory init``."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from unstuck import Jobs, env_text
from unstuck_memory import settings
from unstuck_memory.errors import SettingsError
from unstuck_memory.verbs.opened import first_settings, run
from unstuck_memory.verbs.output import without_user


@click.command()
@click.option("--uri", help="A Neo4j server for the graph: bolt://host:7687; else NEO4J_URI, else a file.")
@click.option("--username", help="With --uri.")
@click.option("--password", help="With --uri; better by NEO4J_PASSWORD.")
@click.option("--database", help="With --uri. [default: neo4j]")
def init(uri: str | None, username: str | None, password: str | None, database: str | None) -> None:
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
    click.echo(f"the graph is ready: {found.graph_at!s}")
    click.echo(f"the job store is ready: {without_user(found.jobs_at)}")


async def _init(found: settings.Settings) -> None:
    async with found.graph() as graph:
        await graph.migrate()
    async with Jobs.open(found.jobs_at, create=True):
        pass
