"""Brings the database up to date: constraints and indexes, of the graph and of each model."""

from __future__ import annotations

from collections.abc import Iterator

from neo4j.exceptions import Neo4jError

from unstuck_memory.errors import GraphDamaged, GraphUnavailable, UnstuckMemoryError
from unstuck_memory.graphs.neo4j.client import NEWEST, PACKAGE, Client, KnownModel, bare, refuse_newer
from unstuck_memory.graphs.statements import statements

LONG = 600.0  # seconds to build an index on many nodes


async def migrate(client: Client) -> None:
    """Apply what is missing. Several processes may do so at once: a statement is harmless if another applied it first."""
    found = await client.rows("version")
    version = int(found[0][0]) if found else 0
    refuse_newer(version)
    if version == NEWEST:
        return
    for text in list(statements(PACKAGE, "cypher/migrations").values())[version:]:
        for statement in _each(text):
            await _apply(client, statement)
    await _all_online(client)
    await client.rows("migrated", version=NEWEST)


async def index_model(client: Client, model: KnownModel) -> None:
    """Create the indexes of one model's vectors, and of the entities that lack them."""
    for text in statements(PACKAGE, "cypher/model").values():
        for statement in _each(text):
            named = statement.replace("{number}", str(int(model.number)))
            await _apply(client, named.replace("{dimension}", str(int(model.dimension))))
    await _all_online(client)


async def _all_online(client: Client) -> None:
    await client.run(f"CALL db.awaitIndexes({LONG:.0f})", {}, patience=LONG)


async def _apply(client: Client, statement: str) -> None:
    try:
        await client.run(statement, {}, patience=LONG)
    except GraphUnavailable:
        raise
    except UnstuckMemoryError as error:
        cause = error.__cause__
        code = (cause.code if isinstance(cause, Neo4jError) else None) or ""
        if "EquivalentSchemaRule" in code:  # another process was faster
            return
        if "Schema" not in code:
            raise
        name = " ".join(statement.split()[:3])
        raise GraphDamaged(f"{name} is not possible: {error}; remove what conflicts with it") from error


def _each(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, bare(text).split(";")))
