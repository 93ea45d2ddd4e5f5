"""Which models the graph knows, and which entities lack their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Client, KnownModel, Transaction, numbered
from unstuck_memory.graphs.neo4j.migrate import index_model
from unstuck_memory.values import Coverage, Entity
from unstuck_memory.vectors import Model

MARKED_AT_ONCE = 1000


class Models:
    """Remembers the models that were found: a model keeps its number for ever."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[Model, KnownModel] = {}
        self._indexed: set[Model] = set()

    async def find(self, model: Model) -> KnownModel | None:
        """The model, if it is known with this dimension."""
        return self._found.get(model) or (await self._all()).get(model)

    async def use(self, model: Model) -> None:
        if await self.find(model) is None:
            await self._client.write(partial(_make_known, model=model))
        found = need(await self._all(), model)
        if model not in self._indexed:
            await index_model(self._client, found)
            self._indexed.add(model)

    async def without_embeddings(
        self, model: Model, limit: int, project: str | None, after: Entity | None
    ) -> list[Entity]:
        known = need(await self._all(), model)
        newest = max(one.number for one in self._found.values())
        while await self._client.write(partial(_mark, newest=newest)) == MARKED_AT_ONCE:
            pass
        name = "without_embeddings" if project is None else "without_embeddings_in"
        text = self._client.texts[name].replace("{number}", str(known.number))
        behind = rows.waiting(after.valid_from, after.uid) if after else ""
        found = await self._client.run(text, {"project": project, "after": behind, "limit": limit})
        return [rows.entity(one) for (one,) in found]

    async def coverage(self, project: str, model: Model) -> Coverage:
        known = await self.find(model)
        fence = rows.fence(known.number if known else 0)
        [[entities, embedded]] = await self._client.rows("coverage", project=project, fence=fence)
        return Coverage(entities=entities, embedded=embedded)

    async def _all(self) -> Mapping[Model, KnownModel]:
        self._found = numbered(await self._client.rows("models"))
        return self._found


def need(models: Mapping[Model, KnownModel], model: Model) -> KnownModel:
    found = models.get(model)
    if found is None:
        raise InvalidInput(
            f"model {model.name!r} with dimension {model.dimension} is not known to the graph: call use_model first"
        )
    return found


async def _make_known(tx: Transaction, *, model: Model) -> None:
    await tx.rows("lock_model")
    there = numbered(await tx.rows("models"))
    if model not in there:
        number = max((known.number for known in there.values()), default=0) + 1
        await tx.rows("create_model", name=model.name, dimension=model.dimension, number=number)


async def _mark(tx: Transaction, *, newest: int) -> int:
    """Mark some of the entities that were written before the newest model was known."""
    found = await tx.rows("unmarked", models=newest, limit=MARKED_AT_ONCE)
    states = []
    for uid, since, fences in found:
        lacking = [number for number in range(1, newest + 1) if rows.fence(number) not in fences]
        marks = {rows.missing(number): rows.waiting(since, uid) for number in lacking}
        states.append({"uid": uid, "models": newest, **marks})
    await tx.rows("note_embeddings", states=states)
    return len(found)
