"""The verb ``unstuck-memory repair``."""

from __future__ import annotations

from typing import Literal

import click

from unstuck_memory.errors import NotFound
from unstuck_memory.values import Value
from unstuck_memory.verbs.opened import WORKER, model_of, opened, run
from unstuck_memory.verbs.output import counted, fit, json_option, print_json, project_option


class RepairJob(Value, frozen=True, kw_only=True):
    """``new``: the job waits since now; otherwise it was waiting or running before."""

    entity: str
    job_id: str
    new: bool


class Repaired(Value, frozen=True, kw_only=True):
    """What ``repair --json`` prints. ``discovered`` entities have no embedding; all of them are ``queued`` now."""

    mode: Literal["specific", "batch"]
    discovered: int
    queued: int
    newly_scheduled: int
    jobs: tuple[RepairJob, ...]
    workers: int


@click.command()
@click.argument("name", default="")
@click.option(
    "--limit", type=int, default=10, show_default=True, help="Without a name: at most so many entities."
)
@project_option
@json_option
def repair(name: str, limit: int, project: str, *, as_json: bool) -> None:
    """Queue the embedding of one entity, also if it has one; or, without a name, of entities that have none."""
    found = run(_repair(name, limit, project))
    if as_json:
        print_json(found)
        return
    for job in found.jobs:
        click.echo(fit(f"{'queued' if job.new else 'was queued before'}: {job.entity}"))
    if found.mode == "batch":
        entities = counted(found.discovered, "entity", "entities")
        click.echo(f"{entities} without embeddings found, {found.newly_scheduled} newly queued")
    if found.jobs and not found.workers:
        click.echo(f"no worker runs: {WORKER}")


async def _repair(name: str, limit: int, project: str) -> Repaired:
    async with opened(project) as memory:
        if name.strip():
            entity = await memory.memory.get_entity(name)
            if entity is None:
                raise NotFound(
                    f"project {project!r} has no entity {name!r}: one that exists is needed; look for it with unstuck-memory search"
                )
            entities = [entity]
        else:
            await model_of(memory.provider)
            entities = await memory.memory.get_entities_without_embeddings(limit)
        jobs = await memory.jobs.schedule(entities, again=True)
        return Repaired(
            mode="specific" if name.strip() else "batch",
            discovered=0 if name.strip() else len(entities),
            queued=len(jobs),
            newly_scheduled=sum(job.created for job in jobs),
            jobs=tuple(
                RepairJob(entity=entity.name, job_id=job.id, new=job.created)
                for entity, job in zip(entities, jobs, strict=True)
            ),
            workers=(await memory.jobs.get_health_status()).workers,
        )
