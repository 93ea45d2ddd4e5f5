"""A process that writes a graph beside others: ``python -m support_memory.programs.writer PLACE PROJECT GATE WORK NUMBER COUNT``.

It prints ``ready``, waits until it may share the lock on the file ``GATE``, and prints after each call what it has done.
"""
# ruff: noqa: T201

import asyncio
import fcntl
import sys
from collections.abc import Awaitable, Callable

from unstuck_memory.graph import Graph
from unstuck_memory.values import NewEntity, NewRelation, Observations

from support_memory.places import place


def _entity(name: str, *observations: str) -> NewEntity:
    return NewEntity(name=name, entity_type="thing", observations=observations)


async def create(graph: Graph, project: str, name: str) -> None:
    """The same entity as everybody, each with observations of its own."""
    [answer] = await graph.create_entities(project, [_entity("hub", f"seen by {name}", "seen by all")])
    assert answer.entity is not None
    assert f"seen by {name}" in answer.entity.observations


async def relate(graph: Graph, project: str, name: str) -> None:
    """The same relation as everybody."""
    relation = NewRelation(from_="Ann", to="Bob", relation_type="knows", metadata={name: True})
    [answer] = await graph.create_relations(project, [relation])
    assert answer.relation is not None


async def everything(graph: Graph, project: str, name: str) -> None:
    """Entities of its own, observations and relations of a hub that is everybody's, things that come and go."""
    await graph.create_entities(
        project, [_entity("hub", f"seen by {name}"), _entity(name), _entity(f"{name} passes")]
    )
    await graph.create_relations(
        project,
        [
            NewRelation(from_=name, to="hub", relation_type="part of", strength=0.5),
            NewRelation(from_=f"{name} passes", to=name, relation_type="passes"),
            NewRelation(from_="hub", to="hub", relation_type="is", metadata={"by": name}),
        ],
    )
    await graph.add_observations(
        project,
        [
            Observations(entity_name=name, contents=("done",)),
            Observations(entity_name="hub", contents=(f"done by {name}",), replaces=(f"seen by {name}",)),
        ],
    )
    assert await graph.delete_entities(project, [f"{name} passes"]) == [True]


WORK: dict[str, Callable[[Graph, str, str], Awaitable[None]]] = {
    "create": create,
    "relate": relate,
    "everything": everything,
}


async def main(where: str, project: str, gate: str, work: str, number: str, count: str) -> None:
    async with place(where).graph() as graph:
        await graph.now()  # connected
        print("ready", flush=True)
        with open(gate) as file:  # noqa: ASYNC230, PTH123 - it has nothing else to do
            fcntl.flock(file, fcntl.LOCK_SH)
        for turn in range(int(count)):
            await WORK[work](graph, project, f"{number}-{turn}")
            print(f"done {number}-{turn}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
