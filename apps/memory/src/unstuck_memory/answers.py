"""What :class:`~unstuck_memory.memory.Memory` answers beyond single entities and relations."""

from __future__ import annotations

from unstuck_memory.values import Entity, EntityChange, Merge, Relation, Value


class EntitiesWritten(Value, frozen=True, kw_only=True):
    """What became of each item, in order.

    ``scheduled`` is whether the new versions have their jobs. If the queue could not be reached, the entities are written all the
    same, and a worker of the memory schedules them later.
    """

    changes: tuple[EntityChange, ...]
    scheduled: bool = True

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The current versions of what was written or there already."""
        return tuple(change.entity for change in self.changes if change.entity is not None)


class Merged(Value, frozen=True, kw_only=True):
    """What a merge moved, or would move; ``scheduled`` as in :class:`EntitiesWritten`."""

    merge: Merge
    scheduled: bool = True


class KnowledgeGraph(Value, frozen=True, kw_only=True):
    """Entities in order of their names, and the relations that have one of them at either end.

    ``next_after`` is where the next page begins; None if this is the last one. ``more_relations``: these entities have more relations
    than an answer holds.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    next_after: str | None = None
    more_relations: bool = False


class DecayInfo(Value, frozen=True, kw_only=True):
    """How confidence was decayed: by ``exp(decay_factor × age in milliseconds)``, but not below ``min_confidence``."""

    reference_time: int
    decay_factor: float
    half_life_days: float | None
    min_confidence: float


class DecayedGraph(Value, frozen=True, kw_only=True):
    """A page of the current graph with the confidence that is left at the reference time."""

    graph: KnowledgeGraph
    decay_info: DecayInfo


class BadLine(Value, frozen=True, kw_only=True):
    """A line that was not imported, counted from 1."""

    line: int
    problem: str


class Imported(Value, frozen=True, kw_only=True):
    """What an import wrote.

    ``records`` counts versions of entities and relations for an archive, created or changed ones for the file of a reference server;
    what was there already is not counted. ``bad`` has the first of the lines that were left out, ``bad_lines`` their number.
    """

    records: int
    bad_lines: int = 0
    bad: tuple[BadLine, ...] = ()
    scheduled: bool = True
