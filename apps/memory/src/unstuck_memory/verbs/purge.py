"""The verb ``unstuck-memory purge``."""

from __future__ import annotations

import re
import sys

import click

from unstuck_memory.errors import InvalidInput
from unstuck_memory.values import Purge
from unstuck_memory.verbs.opened import opened, run
from unstuck_memory.verbs.output import counted, json_option, print_json, project_option

UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LONGEST = 36_500 * UNITS["d"]
AGE = re.compile(r"(\d{1,10})([smhdw])", re.ASCII)


@click.command()
@click.option(
    "--older-than", "age", required=True, metavar="AGE", help="Since it was archived, for example 30d."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@json_option
def purge(age: str, project: str, *, yes: bool, as_json: bool) -> None:
    """Delete for good what was replaced or deleted that long ago. What is current stays."""
    older_than = _milliseconds(age)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("purge deletes for good and cannot ask here: add --yes")
        click.confirm(
            f"Delete for good what was archived more than {age} ago in project {project!r}?",
            abort=True,
            err=True,
        )

    async def purged() -> Purge:
        async with opened(project) as memory:
            return await memory.memory.purge(older_than)

    found = run(purged())
    if as_json:
        print_json(found)
        return
    entities = counted(found.entities, "version of an entity", "versions of entities")
    relations = counted(found.relations, "version of a relation", "versions of relations")
    click.echo(f"{entities} and {relations} deleted for good")


def _milliseconds(age: str) -> int:
    found = AGE.fullmatch(age.strip())
    if found is None or (milliseconds := int(found[1]) * UNITS[found[2]]) > LONGEST:
        raise InvalidInput(
            f"--older-than is {age!r:.40}: it must be a whole number with s, m, h, d or w, up to 36500d; for example 30d"
        )
    return milliseconds
