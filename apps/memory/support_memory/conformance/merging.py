"""Two entities become one."""

import pytest
from unstuck_memory.errors import InvalidInput, NotFound
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity

from support_memory.conformance.given import coherent, connected, created, key, new, one, related, relation


async def _two(graph: Graph, project: str) -> tuple[Entity, Entity]:
    """``Bob`` and ``Bobby``, who share an observation and an acquaintance and are related to each other."""
    await created(graph, project, new("Ann"), new("Cid"))
    bob, bobby = await created(
        graph, project, new("Bob", "sings", "cooks", kind="person"), new("Bobby", "cooks", "swims", "runs")
    )
    await connected(
        graph,
        project,
        related("Bobby", "Ann", strength=0.3, confidence=0.4, metadata={"of": "Bobby"}),
        related("Bob", "Ann", strength=0.7),
        related("Cid", "Bobby", "likes", strength=0.2),
        related("Bobby", "Bobby", "sees"),
        related("Bob", "Bobby", "same as"),
        related("Bobby", "Bob", "same as"),
    )
    return bob, bobby


async def test_observations_and_relations_move_and_the_source_is_archived(graph: Graph, project: str) -> None:
    bob, bobby = await _two(graph, project)
    merge = await graph.merge_entities(project, "Bobby", "Bob")

    assert (merge.source, merge.into, merge.dry_run) == ("Bobby", "Bob", False)
    assert (merge.observations, merge.relations) == (2, 3)
    merged = await one(graph, project, "Bob")
    assert (merged.uid, merged.version, merged.entity_type) == (bob.uid, 2, "person")
    assert merged.observations == ("sings", "cooks", "swims", "runs")
    assert await graph.get_entities(project, ["Bobby"]) == []
    [archived] = await graph.entity_history(project, "Bobby")
    assert (archived.uid, archived.observations) == (bobby.uid, bobby.observations)
    assert archived.valid_to is not None

    found = await graph.relations_of(project, ["Bob", "Bobby"])
    assert [(r.from_, r.to, r.relation_type, r.strength, r.confidence, r.metadata) for r in found] == [
        ("Bob", "Ann", "knows", 0.7, 0.4, {"of": "Bobby"}),
        ("Bob", "Bob", "sees", None, None, None),
        ("Cid", "Bob", "likes", 0.2, None, None),
    ]
    assert found == await graph.relations_of(project, ["Ann", "Bob", "Cid"])
    await coherent(graph, project)


async def test_a_relation_that_moves_is_as_old_as_it_was(graph: Graph, project: str) -> None:
    """Nobody stated it now, so its confidence decays on."""
    await _two(graph, project)
    before = await relation(graph, project, key("Cid", "Bobby", "likes"))
    while await graph.now() <= before.updated_at:
        pass
    await graph.merge_entities(project, "Bobby", "Bob")
    after = await relation(graph, project, key("Cid", "Bob", "likes"))
    assert after.updated_at == before.updated_at
    assert after.valid_from > before.valid_from


async def test_the_history_of_both_remains(graph: Graph, project: str) -> None:
    await _two(graph, project)
    before = await relation(graph, project, key("Cid", "Bobby", "likes"))
    between = await relation(graph, project, key("Bob", "Bobby", "same as"))
    await graph.merge_entities(project, "Bobby", "Bob")

    [old] = await graph.relation_history(project, before.key)
    assert (old.uid, old.strength) == (before.uid, 0.2)
    assert old.valid_to is not None
    [gone] = await graph.relation_history(project, between.key)
    assert gone.valid_to is not None
    assert await graph.relations_of(project, ["Bobby"]) == []
    then = await graph.relations_of(project, ["Bobby"], at=between.valid_from)
    assert between.uid in {r.uid for r in then}


async def test_a_dry_run_gives_the_same_numbers_and_writes_nothing(graph: Graph, project: str) -> None:
    await _two(graph, project)
    before = await coherent(graph, project)
    planned = await graph.merge_entities(project, "Bobby", "Bob", dry_run=True)
    assert await coherent(graph, project) == before

    done = await graph.merge_entities(project, "Bobby", "Bob")
    assert planned.dry_run
    assert (planned.observations, planned.relations) == (done.observations, done.relations) == (2, 3)


async def test_a_merge_that_brings_no_observation_makes_no_version(graph: Graph, project: str) -> None:
    [bob, _] = await created(graph, project, new("Bob", "sings", "cooks"), new("Bobby", "cooks"))
    merge = await graph.merge_entities(project, "Bobby", "Bob")
    assert (merge.observations, merge.relations) == (0, 0)
    assert await graph.entity_history(project, "Bob") == [bob]
    assert await graph.get_entities(project, ["Bobby"]) == []


async def test_two_relations_of_the_source_that_become_one_are_merged(graph: Graph, project: str) -> None:
    """``Bobby`` sees himself; ``Bob`` does, too."""
    await created(graph, project, "Bob", "Bobby")
    await connected(
        graph,
        project,
        related("Bobby", "Bobby", "sees", confidence=0.2),
        related("Bob", "Bob", "sees", strength=0.1),
    )
    merge = await graph.merge_entities(project, "Bobby", "Bob")
    assert merge.relations == 1
    [found] = await graph.relations_of(project, ["Bob"])
    assert (found.from_, found.to, found.strength, found.confidence) == ("Bob", "Bob", 0.1, 0.2)
    await coherent(graph, project)


async def test_nothing_is_merged_into_itself(graph: Graph, project: str) -> None:
    [bob] = await created(graph, project, new("Bob", "sings"))
    for dry_run in (False, True):
        with pytest.raises(InvalidInput, match="Bob"):
            await graph.merge_entities(project, "Bob", "Bob", dry_run=dry_run)
    assert await graph.get_entities(project, ["Bob"]) == [bob]


async def test_what_is_missing_is_not_merged(graph: Graph, project: str) -> None:
    await created(graph, project, "Bob", "gone")
    await graph.delete_entities(project, ["gone"])
    before = await coherent(graph, project)
    for source, into in (("Bob", "Nobody"), ("Nobody", "Bob"), ("gone", "Bob"), ("Bob", "gone")):
        for dry_run in (False, True):
            with pytest.raises(NotFound, match=({source, into} - {"Bob"}).pop()):
                await graph.merge_entities(project, source, into, dry_run=dry_run)
    assert await coherent(graph, project) == before
