"""Which models the graph knows, and which entities lack their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Client, KnownModel, Transaction
from unstuck_memory.graphs.neo4j.migrate import index_model
from unstuck_memory.values import Coverage, Entity
from unstuck_memory.vectors import Model

MARKED_AT_ONCE = 1000


class Models:
    """Remembers the models that were found: a model keeps its number and dimension for ever."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[str, KnownModel] = {}
        self._indexed: set[str] = set()

    async def find(self, model: Model) -> KnownModel | None:
        """The model, if it is known with this dimension."""
        found = await self._named(model.name)
        return found if found and found.dimension == model.dimension else None

    async def use(self, model: Model) -> None:
        found = await self._named(model.name)
        if found is None:
            await self._client.write(partial(_make_known, model=model))
        found = need(await self._all(), model)
        if model.name not in self._indexed:
            await index_model(self._client, found)
            self._indexed.add(model.name)

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

    async def _named(self, name: str) -> KnownModel | None:
        return self._found.get(name) or (await self._all()).get(name)

    async def _all(self) -> Mapping[str, KnownModel]:
        self._found = {name: KnownModel(name, *rest) for name, *rest in await self._client.rows("models")}
        return self._found


def need(models: Mapping[str, KnownModel], model: Model) -> KnownModel:
    found = models.get(model.name)
    if found is None:
        raise InvalidInput(f"model {model.name!r} is not known to the graph: call use_model first")
    if found.dimension != model.dimension:
        raise InvalidInput(
            f"model {model.name!r} has dimension {found.dimension} in this graph, not {model.dimension}: "
            "give a model of another dimension another name"
        )
    return found


async def _make_known(tx: Transaction, *, model: Model) -> None:
    await tx.rows("lock_model")
    there = {name: number for name, _, number in await tx.rows("models")}
    if model.name not in there:
        number = max(there.values(), default=0) + 1
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
