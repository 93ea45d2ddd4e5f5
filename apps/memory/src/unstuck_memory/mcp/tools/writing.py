"""Tools that write the graph."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import CallToolResult
from msgspec import Meta

from unstuck_memory import checks
from unstuck_memory.mcp.answer import Answer
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import relation_text, relation_value
from unstuck_memory.mcp.tool import ADDS, DELETES, STATES, tool
from unstuck_memory.mcp.tools.fields import Answered, Arguments, Key, Share
from unstuck_memory.mcp.tools.written import (
    LATER,
    Written,
    ignored_line,
    items_answer,
    observed,
    without_nothing,
)
from unstuck_memory.values import (
    EntityChange,
    NewEntity,
    NewRelation,
    Observations,
)


class EntityArgument(Arguments, frozen=True, kw_only=True):
    name: str
    entityType: str  # noqa: N815
    observations: Annotated[list[str], Meta(description="one fact each")]
    changedBy: str | None = None  # noqa: N815
    id: str | None = None
    version: float | None = None
    createdAt: float | None = None  # noqa: N815
    updatedAt: float | None = None  # noqa: N815
    validFrom: float | None = None  # noqa: N815
    validTo: float | None = None  # noqa: N815


class CreateEntities(Arguments, frozen=True, kw_only=True):
    entities: list[EntityArgument]


@tool(
    group="core",
    takes=CreateEntities,
    answers=Written,
    hints=ADDS,
    description="""Store people, projects, decisions, preferences and what is known of them. Use it when you learn something that will
    matter later; search first. A name that is there already gets the new observations.""",
)
async def create_entities(served: Served, given: CreateEntities) -> CallToolResult:
    written = await served.memory.create_entities(
        [
            NewEntity(
                name=item.name,
                entity_type=item.entityType,
                observations=tuple(item.observations),
                changed_by=item.changedBy,
            )
            for item in given.entities
        ]
    )
    types = [checks.name("entityType", item.entityType) for item in given.entities]
    items = [_entity_item(change, type_) for change, type_ in zip(written.changes, types, strict=True)]
    return items_answer(
        served, written.changes, items, scheduled=written.scheduled, ignored=ignored_line(given.entities)
    )


def _entity_item(change: EntityChange, type_: str) -> dict[str, Any]:
    entity = change.entity
    if entity is None:
        return {"problem": change.problem}
    kept = entity.entity_type if entity.entity_type != type_ and not change.created else None
    return without_nothing(
        name=entity.name,
        entityType=entity.entity_type,
        version=entity.version,
        status="created" if change.created else "changed" if change.changed else "unchanged",
        added=len(change.added),
        similar=change.similar,
        note=f"it keeps its type {kept!r}" if kept else None,
    )


class RelationArgument(Key, frozen=True, kw_only=True):
    strength: Share = None
    confidence: Share = None
    metadata: dict[str, Any] | None = None
    changedBy: str | None = None  # noqa: N815
    id: str | None = None
    version: float | None = None
    createdAt: float | None = None  # noqa: N815
    updatedAt: float | None = None  # noqa: N815
    validFrom: float | None = None  # noqa: N815
    validTo: float | None = None  # noqa: N815

    @property
    def new(self) -> NewRelation:
        return NewRelation(
            from_=self.from_,
            to=self.to,
            relation_type=self.relationType,
            strength=self.strength,
            confidence=self.confidence,
            metadata=self.metadata,
            changed_by=self.changedBy,
        )


class CreateRelations(Arguments, frozen=True, kw_only=True):
    relations: list[RelationArgument]


@tool(
    group="core",
    takes=CreateRelations,
    answers=Written,
    hints=STATES,
    description="""Connect entities that exist, in active voice: Ann works at Acme. Use it when two entities have to do with each other.
    Stating a relation again makes it young again.""",
)
async def create_relations(served: Served, given: CreateRelations) -> CallToolResult:
    changes = await served.memory.create_relations([item.new for item in given.relations])
    items = [
        without_nothing(
            **{"from": item.from_, "to": item.to, "relationType": item.relationType},
            version=change.relation.version if change.relation else None,
            status=None
            if change.problem
            else "created"
            if change.created
            else "changed"
            if change.changed
            else "unchanged",
            problem=change.problem,
        )
        for item, change in zip(given.relations, changes, strict=True)
    ]
    return items_answer(served, changes, items, ignored=ignored_line(given.relations))


class ObservationsArgument(Arguments, frozen=True, kw_only=True):
    entityName: str  # noqa: N815
    contents: list[str]
    replaces: Annotated[list[str], Meta(description="observations that these correct")] | None = None
    strength: float | None = None
    confidence: float | None = None
    metadata: dict[str, Any] | None = None


class AddObservations(Arguments, frozen=True, kw_only=True):
    observations: list[ObservationsArgument]
    strength: float | None = None
    confidence: float | None = None
    metadata: dict[str, Any] | None = None


@tool(
    group="core",
    takes=AddObservations,
    answers=Written,
    hints=ADDS,
    description="""Add facts to entities that exist. Use it when you learn more of them; to correct what has changed, name the old
    observations in replaces, so that both happen in one version.""",
)
async def add_observations(served: Served, given: AddObservations) -> CallToolResult:
    written = await served.memory.add_observations(
        [
            Observations(
                entity_name=item.entityName,
                contents=tuple(item.contents),
                replaces=tuple(item.replaces or ()),
            )
            for item in given.observations
        ]
    )
    names = [item.entityName for item in given.observations]
    items = [observed(name, change) for name, change in zip(names, written.changes, strict=True)]
    ignored = ignored_line([*given.observations, given])
    return items_answer(served, written.changes, items, scheduled=written.scheduled, ignored=ignored)


class UpdateRelation(Arguments, frozen=True, kw_only=True):
    relation: RelationArgument


class Updated(Answered, frozen=True, kw_only=True):
    relations: list[dict[str, Any]]


@tool(
    takes=UpdateRelation,
    answers=Updated,
    hints=STATES,
    description="""Change strength, confidence or metadata of a relation that exists; what you leave out stays. Use it when you know it
    better.""",
)
async def update_relation(served: Served, given: UpdateRelation) -> CallToolResult:
    relation = await served.memory.update_relation(given.relation.new)
    answer = Answer(served.budget, "relations")
    if ignored := ignored_line([given.relation]):
        answer.note(ignored)
    text = f"version {relation.version}: {relation_text(relation)}"
    return answer.result(truncated=not answer.add("relations", relation_value(relation), text))


class MergeEntities(Arguments, frozen=True, kw_only=True):
    source: str
    into: str
    dry_run: bool | None = None


class Merged(Answered, frozen=True, kw_only=True):
    observations: int
    relations: int
    dry_run: bool
    scheduled: bool


@tool(
    takes=MergeEntities,
    answers=Merged,
    hints=DELETES,
    description="""Move the observations and relations of one entity to another and delete the first. Use it when both are the same
    thing; dry_run shows what would happen.""",
)
async def merge_entities(served: Served, given: MergeEntities) -> CallToolResult:
    merged = await served.memory.merge_entities(given.source, given.into, dry_run=bool(given.dry_run))
    merge = merged.merge
    answer = Answer(
        served.budget,
        observations=merge.observations,
        relations=merge.relations,
        dry_run=merge.dry_run,
        scheduled=merged.scheduled,
    )
    would = "would move" if merge.dry_run else "moved"
    answer.note(f"{would} {merge.observations} observations and {merge.relations} relations")
    if not merged.scheduled:
        answer.note(LATER)
    return answer.result()
