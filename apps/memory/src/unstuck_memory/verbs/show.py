"""The verb ``unstuck-memory show``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from unstuck import Status, UnstuckError
from unstuck_memory.errors import NotFound, UnstuckMemoryError
from unstuck_memory.values import Entity, Relation, Value
from unstuck_memory.verbs.opened import Opened, model_of, opened, run
from unstuck_memory.verbs.output import (
    WIDTH,
    counted,
    fit,
    json_option,
    line,
    moment,
    print_json,
    print_wrapped,
    project_option,
    without_secrets,
)

State = Literal["embedded", "waiting", "running", "failed", "none", "archived", "unknown"]
NEXT: dict[State, str] = {
    "waiting": "its job waits for a worker",
    "running": "its job is running",
    "failed": "its job failed for good; unstuck-memory repair with its name starts it over",
    "none": "it has no job: a worker gives it one, or unstuck-memory repair with its name",
    "archived": "only current versions have any",
}


class Embeddings(Value, frozen=True, kw_only=True):
    """``vectors`` are those of the current version; ``why`` is the error of a job, or why nothing is known."""

    state: State
    model: str
    vectors: int = 0
    why: str | None = None


class Shown(Value, frozen=True, kw_only=True):
    """What ``show --json`` prints. ``entity`` is None if it is archived; ``history`` is there if it was asked for."""

    entity: Entity | None
    relations: tuple[Relation, ...]
    more_relations: bool
    embeddings: Embeddings
    history: tuple[Entity, ...] | None


@click.command()
@click.argument("name")
@click.option("--history", is_flag=True, help="Show what each version changed, also of an archived entity.")
@project_option
@json_option
def show(name: str, project: str, *, history: bool, as_json: bool) -> None:
    """Show an entity: its observations, its relations, and whether it has its embeddings."""
    found = run(_shown(name, project, history=history))
    if as_json:
        print_json(found)
        return
    if found.entity is not None:
        _print_entity(found.entity)
    for relation in found.relations:
        _print_relation(relation)
    if found.more_relations:
        click.echo("  … and more relations")
    if found.history is not None:
        _print_history(found.history)
    click.echo(_state(found.embeddings))


async def _shown(name: str, project: str, *, history: bool) -> Shown:
    async with opened(project) as memory:
        versions = await memory.memory.get_entity_history(name) if history else None
        entity = await memory.memory.get_entity(name)
        if entity is None and not versions:
            raise NotFound(
                f"project {project!r} has no entity {name!r}: one that exists is needed; look for it with unstuck-memory search"
            )
        graph = await memory.memory.open_nodes([name])
        return Shown(
            entity=entity,
            relations=graph.relations,
            more_relations=graph.more_relations,
            embeddings=await _embeddings(memory, entity),
            history=None if versions is None else tuple(versions),
        )


async def _embeddings(memory: Opened, entity: Entity | None) -> Embeddings:
    """A provider or a queue that does not answer hides nothing of the entity."""
    model = memory.provider.name
    if entity is None:
        return Embeddings(state="archived", model=model)
    try:
        embedding = await memory.graph.embedding_of(entity.uid, await model_of(memory.provider))
        if embedding is not None:
            return Embeddings(state="embedded", model=model, vectors=len(embedding.chunks))
        job = await memory.jobs.job_of(entity)
    except (UnstuckError, UnstuckMemoryError) as error:
        return Embeddings(state="unknown", model=model, why=without_secrets(line(str(error))))
    why = None if job is None or job.error is None else without_secrets(line(job.error.message))
    states: dict[Status, State] = {
        Status.PENDING: "waiting",
        Status.PROCESSING: "running",
        Status.FAILED: "failed",
    }
    return Embeddings(state=states.get(job.status, "none") if job else "none", model=model, why=why)


def _print_entity(entity: Entity) -> None:
    by = f" by {line(entity.changed_by)}" if entity.changed_by else ""
    print_wrapped(f"{entity.name} ({entity.entity_type})")
    print_wrapped(
        f"version {entity.version} of {moment(entity.valid_from)}{by}, created {moment(entity.created_at)}"
    )
    for observation in entity.observations:
        print_wrapped(observation, "  - ")


def _print_relation(relation: Relation) -> None:
    facts = [
        f"{name} {value:.4g}"
        for name, value in (("strength", relation.strength), ("confidence", relation.confidence))
        if value is not None
    ]
    behind = f" ({', '.join(facts)})" if facts else ""
    print_wrapped(f"{relation.from_} -[{relation.relation_type}]-> {relation.to}{behind}", "  ")


def _print_history(versions: Sequence[Entity]) -> None:
    click.echo("history")
    before: Entity | None = None
    for version in versions:
        had = before.observations if before is not None and before.uid == version.uid else ()
        until = "now" if version.valid_to is None else moment(version.valid_to)
        by = f" by {line(version.changed_by)}" if version.changed_by else ""
        click.echo(
            f"  {fit(f'version {version.version}, {moment(version.valid_from)} to {until}{by}', WIDTH - 2)}"
        )
        for text in had:
            if text not in version.observations:
                print_wrapped(text, "    - ")
        for text in version.observations:
            if text not in had:
                print_wrapped(text, "    + ")
        before = version


def _state(found: Embeddings) -> str:
    if found.state == "embedded":
        return f"embeddings: {counted(found.vectors, 'vector', 'vectors')} by {line(found.model)}"
    text = NEXT.get(found.state)
    return "embeddings: " + "; ".join(
        part for part in ("unknown" if text is None else f"none, {text}", found.why) if part
    )
