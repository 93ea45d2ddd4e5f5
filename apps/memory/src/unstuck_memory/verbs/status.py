"""The verb ``unstuck-memory status``."""

from __future__ import annotations

import sys

import click

from unstuck import Jobs
from unstuck_memory.values import Coverage, Value
from unstuck_memory.verbs.opened import WORKER, known_settings, model_of, must_be_there, opened, run
from unstuck_memory.verbs.output import counted, json_option, print_json, project_option, without_user


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


@click.command()
@project_option
@json_option
def status(project: str, *, as_json: bool) -> None:
    """Show how many entities have their embeddings, and how their jobs do.

    The exit code is 1 if embeddings are missing and no worker is there to make them.
    """
    found = run(_status(project))
    if as_json:
        print_json(found)
    else:
        for row in _lines(found):
            click.echo(row)
    if found.missing and not found.workers:
        sys.exit(1)


async def _status(project: str) -> Status:
    found = known_settings()
    must_be_there(found)
    async with (
        Jobs.open(found.jobs_at),  # which makes no store that is not there
        opened(project) as memory,
    ):
        model = await model_of(memory.provider)
        coverage = await memory.memory.coverage()
        missing = await memory.graph.without_embeddings(model, limit=1)
        health = await memory.jobs.get_health_status()
        return Status(
            graph=str(found.graph_at),
            jobs=without_user(found.jobs_at),
            provider=memory.provider.kind,
            model=model.name,
            project=project,
            coverage=coverage,
            missing=bool(missing),
            queue=await memory.jobs.get_queue_status(),
            dead_letters=await memory.jobs.count_dead_letters(),
            workers=health.workers,
            health=health.status,
            why=health.why,
        )


def _lines(found: Status) -> list[str]:
    covered = found.coverage
    share = f"{covered.embedded / covered.entities:.0%}" if covered.entities else "none there"
    queue = ", ".join(f"{count} {state}" for state, count in found.queue.items())
    dead = counted(found.dead_letters, "dead letter", "dead letters")
    lines = [
        f"graph      {found.graph}",
        f"jobs       {found.jobs}",
        f"provider   {found.provider}, model {found.model}",
        f"project    {found.project}: {covered.embedded} of {covered.entities} entities have embeddings ({share})",
        f"queue      {queue}; {dead}",
        f"workers    {found.workers}, {found.health}{f': {found.why}' if found.why else ''}",
    ]
    if found.dead_letters:
        lines.append("dead letters: unstuck dead --queue embedding lists them, unstuck retry puts them back")
    if found.missing and not found.workers:
        lines.append(f"embeddings are missing and no worker runs: {WORKER}")
    return lines
