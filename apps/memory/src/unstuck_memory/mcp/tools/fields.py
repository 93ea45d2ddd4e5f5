"""Arguments that several tools take, and what several answers have in them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool takes. Names are those that a host sends."""


Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)] | None
Cursor: TypeAlias = str | None
Detail: TypeAlias = Literal["full", "names"] | None
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)] | None


class Key(Arguments, frozen=True, kw_only=True):
    from_: str = field(name="from")
    to: str
    relationType: str  # noqa: N815


class Shown(Struct, frozen=True, kw_only=True, rename="camel"):
    """A value of an answer, as its schema says it. What has a default may be missing; times, versions and metadata explain themselves."""


class ShownEntity(Shown, frozen=True, kw_only=True):
    name: str
    entity_type: str
    observations: list[str] | None = None
    observations_left: int | None = None


class ShownRelation(Shown, frozen=True, kw_only=True):
    from_: str = field(name="from")
    to: str
    relation_type: str
    strength: float | None = None
    confidence: float | None = None


class Answered(Struct, frozen=True, kw_only=True):
    """What every answer says: whether something was left out of it."""

    truncated: bool


class Bounded(Answered, frozen=True, kw_only=True):
    """An answer of pages."""

    next_cursor: str | None = None


class GraphPage(Bounded, frozen=True, kw_only=True):
    entities: list[ShownEntity]
    relations: list[ShownRelation]
