"""The verb ``unstuck-memory merge``."""

from __future__ import annotations

import click

from unstuck_memory.answers import Merged
from unstuck_memory.verbs.opened import opened, run
from unstuck_memory.verbs.output import counted, json_option, line, print_json, project_option


@click.command()
@click.argument("source")
@click.argument("into")
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@project_option
@json_option
def merge(source: str, into: str, project: str, *, dry_run: bool, as_json: bool) -> None:
    """Move observations and relations of SOURCE to INTO, and archive SOURCE."""

    async def merged() -> Merged:
        async with opened(project) as memory:
            return await memory.memory.merge_entities(source, into, dry_run=dry_run)

    found = run(merged())
    if as_json:
        print_json(found)
        return
    moved = found.merge
    observations = counted(moved.observations, "observation", "observations")
    relations = counted(moved.relations, "relation", "relations")
    click.echo(
        f"{observations} and {relations} {'would move' if dry_run else 'moved'} "
        f"from {line(moved.source)!r} to {line(moved.into)!r}"
    )
    if not found.scheduled:
        click.echo("the queue did not answer: a worker embeds the new version later")
