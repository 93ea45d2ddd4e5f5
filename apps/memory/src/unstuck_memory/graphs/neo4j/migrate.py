"""Brings the database up to date: constraints and indexes, of the graph and of each model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from neo4j.exceptions import Neo4jError

from unstuck_memory.errors import GraphDamaged, GraphUnavailable, UnstuckMemoryError
from unstuck_memory.graphs.neo4j.client import NEWEST, PACKAGE, Client, KnownModel, bare, refuse_newer
from unstuck_memory.graphs.statements import statements

_NAME = re.compile(r"^CREATE (?:[A-Z]+ )*(memory_\w+) IF NOT EXISTS")
_INDEXES = "SHOW INDEXES YIELD name, options RETURN name, options.indexConfig['vector.dimensions']"
LONG = 600.0  # seconds to build an index on many nodes


async def migrate(client: Client) -> None:
    """Apply what is missing. Several processes may do so at once: a statement is harmless if another applied it first."""
    found = await client.rows("version")
    version = int(found[0][0]) if found else 0
    refuse_newer(version)
    made = [one for text in statements(PACKAGE, "cypher/migrations").values() for one in _each(text)]
    if version == NEWEST and {_NAME.findall(one)[0] for one in made} <= set(await _indexes(client)):
        return
    for statement in made:
        await _apply(client, statement)
    await _all_online(client)
    await client.rows("migrated", version=NEWEST)


async def index_model(client: Client, model: KnownModel) -> None:
    """Create the indexes of one model's vectors, and of the entities that lack them."""
    for text in statements(PACKAGE, "cypher/model").values():
        named = text.replace("{number}", str(int(model.number))).replace(
            "{dimension}", str(int(model.dimension))
        )
        for statement in _each(named):
            name = _NAME.findall(statement)[0]
            # A database whose nodes were all deleted has its indexes still, and gives the numbers of models again.
            if (await _indexes(client)).get(name) not in (None, model.dimension):
                await _apply(client, f"DROP INDEX {name} IF EXISTS")
            await _apply(client, statement)
    await _all_online(client)


async def _indexes(client: Client) -> dict[str, int | None]:
    """The dimension of each index by its name, None if it is not of vectors. A constraint has an index of its name."""
    return dict(await client.run(_INDEXES, {}))


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
