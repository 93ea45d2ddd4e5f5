"""Imports: the records of an archive, and the lines of a reference memory server's file, into one project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeGuard, TypeVar

from unstuck_memory import archive, reference_file
from unstuck_memory.answers import EntitiesWritten, Imported
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graph import Graph
from unstuck_memory.reference_file import BadLines
from unstuck_memory.values import Entity, EntityChange, NewEntity, NewRelation, RelationChange

T = TypeVar("T", NewEntity, NewRelation)
C = TypeVar("C", EntityChange, RelationChange)
LINES = 200  # of a transaction


async def import_archive(
    path: Path, graph: Graph, project: str, schedule: Callable[[Sequence[Entity]], Awaitable[bool]]
) -> Imported:
    """Restore the whole archive. It is read twice before, so that one that cannot be restored leaves nothing behind."""
    await asyncio.to_thread(archive.check, path)
    async for batch in _batches(path):
        await _check_names(graph, project, [record.entity for record in batch if _is_current(record)])
    new, scheduled = 0, True
    async for batch in _batches(path):
        if restored := await graph.restore(project, batch):
            new += restored
            scheduled &= await schedule([record.entity for record in batch if _is_current(record)])
    return Imported(records=new, scheduled=scheduled)


async def _batches(path: Path) -> AsyncIterator[list[ArchiveRecord]]:
    batches = archive.batches(path)
    while batch := await asyncio.to_thread(next, batches, None):
        yield batch


def _is_current(record: ArchiveRecord) -> TypeGuard[EntityRecord]:
    return isinstance(record, EntityRecord) and record.entity.valid_to is None


async def _check_names(graph: Graph, project: str, entities: Sequence[Entity]) -> None:
    """Refuse entities whose names others have here, and those that are in another project of the graph."""
    there = {
        entity.uid: entity.name for entity in await graph.get_by_uid([entity.uid for entity in entities])
    }
    names = {entity.name for entity in entities} | set(there.values())
    here = {entity.name: entity.uid for entity in await graph.get_entities(project, sorted(names))}
    for entity in entities:
        if here.get(entity.name, entity.uid) != entity.uid:
            raise InvalidInput(
                f"project {project!r} has another entity named {entity.name!r}: an archive can be restored where its names are free; "
                "import it into a new project, or merge by name with a file of form 'reference'"
            )
        if entity.uid in there and here.get(there[entity.uid]) != entity.uid:
            raise InvalidInput(
                f"entity {entity.name!r} of the archive is in another project of this graph: an entity can be in one project; "
                "import a file of form 'reference'"
            )


async def import_reference(
    path: Path,
    create_entities: Callable[[Sequence[NewEntity]], Awaitable[EntitiesWritten]],
    create_relations: Callable[[Sequence[NewRelation]], Awaitable[list[RelationChange]]],
) -> Imported:
    """Create the entities of all lines, then the relations; lines that cannot be read are left out and reported."""
    bad = BadLines()
    scheduled = True

    async def entities(items: Sequence[NewEntity]) -> Sequence[EntityChange]:
        nonlocal scheduled
        written = await create_entities(items)
        scheduled &= written.scheduled
        return written.changes

    count = await _write(reference_file.entities(path, bad), entities, bad)
    count += await _write(reference_file.relations(path, bad), create_relations, bad)
    first = tuple(sorted(bad.first, key=lambda one: one.line))
    return Imported(records=count, bad_lines=bad.count, bad=first, scheduled=scheduled)


async def _write(
    items: Iterator[tuple[int, T]], write: Callable[[Sequence[T]], Awaitable[Sequence[C]]], bad: BadLines
) -> int:
    """Write what the lines have; answers how much of it is new or changed."""
    count = 0
    while batch := await asyncio.to_thread(list, islice(items, LINES)):
        for number, change in await _written(batch, write, bad):
            if change.problem is not None:
                bad.add(number, change.problem)
            count += change.created or change.changed
    return count


async def _written(
    batch: Sequence[tuple[int, T]], write: Callable[[Sequence[T]], Awaitable[Sequence[C]]], bad: BadLines
) -> list[tuple[int, C]]:
    """The batch in one call; if that is refused, line by line, because one of them is at fault."""
    try:
        changes = await write([item for _, item in batch])
        return list(zip((number for number, _ in batch), changes, strict=True))
    except InvalidInput as error:
        if len(batch) == 1:
            bad.add(batch[0][0], str(error))
            return []
    return [done for one in batch for done in await _written([one], write, bad)]
