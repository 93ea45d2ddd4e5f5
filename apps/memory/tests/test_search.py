"""Search by words, by meaning and by both: what is found, in which order, with which scores."""

import pytest
from support_memory.conformance.given import changed, created, more, new
from support_memory.searching import Placed, embed_all, found, place, place_all
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Search
from unstuck_memory.search_words import words_of

pytestmark = pytest.mark.anyio

FILLERS = [new(f"filler {number}", "nothing of the kind") for number in range(30)]


@pytest.fixture
def provider() -> Placed:
    return Placed()


@pytest.fixture
def search(file_graph: SqliteGraph, provider: Placed) -> Search:
    return Search(file_graph, provider, "default")


@pytest.mark.accepts("T12")
async def test_each_mode_scores_by_its_part_and_hybrid_by_the_weighted_mean(
    file_graph: SqliteGraph, search: Search
) -> None:
    await created(file_graph, "default", *FILLERS)
    word, both, sense = await created(
        file_graph, "default", new("word", "amber"), new("both", "amber"), new("sense", "resin")
    )
    await place(file_graph, word, -0.2, -0.3)
    await place(file_graph, both, 0.1, 0.5)
    await place(file_graph, sense, 0.7, 0.6)

    by_words = await search.find("amber", mode="keyword")
    assert set(found(by_words)) == {"word", "both"}
    assert [(hit.score, hit.semantic) for hit in by_words.hits] == [
        (hit.keyword, None) for hit in by_words.hits
    ]
    by_meaning = await search.find("amber", mode="semantic")
    assert found(by_meaning) == ["sense", "both", "word"]
    assert [hit.score for hit in by_meaning.hits] == pytest.approx([0.7, 0.5, -0.2], abs=1e-4)
    assert [hit.keyword for hit in by_meaning.hits] == [None, None, None]

    share = by_words.hits[0].keyword
    assert share is not None
    for weight in (0.6, 0.25):
        hybrid = await search.find("amber", semantic_weight=weight)
        scores = {hit.entity.name: hit.score for hit in hybrid.hits}
        assert scores == pytest.approx(
            {
                "both": weight * 0.5 + (1 - weight) * share,
                "word": weight * -0.2 + (1 - weight) * share,
                "sense": weight * 0.7,
            },
            abs=1e-4,
        )
        parts = {hit.entity.name: (hit.keyword, hit.semantic) for hit in hybrid.hits}
        assert parts["sense"] == pytest.approx((0.0, 0.7), abs=1e-4)
    assert found(await search.find("amber", semantic_weight=0))[2] == "sense"
    assert found(await search.find("amber", semantic_weight=1)) == ["sense", "both", "word"]


async def test_one_word_by_chance_does_not_beat_the_right_meaning(
    file_graph: SqliteGraph, search: Search
) -> None:
    """By ranks it would: the wrong one is the first by words, and the second by meaning. So it would if its word had its full share."""
    await created(file_graph, "default", *FILLERS)
    wrong, right = await created(
        file_graph, "default", new("wrong", "coral reef diving"), new("right", "resin of old trees")
    )
    await place(file_graph, wrong, 0.3, 0.35)
    await place(file_graph, right, 0.3, 0.4)
    query = "which petrified sap resembles coral jewellery"
    answer = await search.find(query)
    assert found(answer)[:2] == ["right", "wrong"]
    [hit] = await file_graph.keyword("default", words_of(query), 5)
    assert 0.6 * 0.35 + 0.4 * hit.score > 0.6 * 0.4


async def test_words_find_what_is_far_away_by_its_meaning_with_its_true_cosine(
    file_graph: SqliteGraph, search: Search
) -> None:
    """A number that means nothing to a model, among more entities that are near than are looked at."""
    crowd = await created(file_graph, "default", *(new(f"near {number}") for number in range(60)))
    await place_all(file_graph, crowd, 0.3)
    [code] = await created(file_graph, "default", new("code", "policy 88120"))
    await place(file_graph, code, 0.1, 0.2)
    first = (await search.find("88120", limit=1)).hits[0]
    assert first.entity.name == "code"
    assert first.semantic == pytest.approx(0.2, abs=1e-4)


async def test_words_that_very_many_have_bring_nobody_forward_whose_meaning_is_far(
    file_graph: SqliteGraph, search: Search
) -> None:
    near = await created(file_graph, "default", *(new(f"near {number}") for number in range(30)))
    await place_all(file_graph, near, 0.3)
    far = await created(file_graph, "default", *(new(f"far {number}", "amber") for number in range(300)))
    await place_all(file_graph, far, -0.9)
    answer = await search.find("amber rings")
    assert all(name.startswith("near") for name in found(answer))
    assert [hit.semantic for hit in answer.hits] == pytest.approx([0.3] * 10, abs=1e-4)


async def test_a_word_that_very_many_have_is_left_out_if_others_find_something(
    file_graph: SqliteGraph, search: Search
) -> None:
    """It would take most of the time and tell little."""
    for first in (0, 800):
        crowd = (new(f"e{number}", "common") for number in range(first, first + 800))
        await created(file_graph, "default", *crowd)
    await created(file_graph, "default", new("rare", "common zither"))
    assert found(await search.find("common zither", mode="keyword")) == ["rare"]
    assert len((await search.find("common", mode="keyword")).hits) == 10
    assert len((await search.find("common unicorn", mode="keyword")).hits) == 10


async def test_what_was_just_written_is_found_by_words_at_once(
    file_graph: SqliteGraph, search: Search
) -> None:
    """Also before its vectors are there, among others that have theirs; and never by what it said before."""
    crowd = await created(file_graph, "default", *(new(f"near {number}") for number in range(40)))
    await place_all(file_graph, crowd, 0.5)
    [ann] = await created(file_graph, "default", new("Ann", "bought a zither"))
    hit = (await search.find("zither", limit=1)).hits[0]
    assert (hit.entity.name, hit.semantic) == ("Ann", None)
    await place(file_graph, ann, 0.9, 0.9)
    await file_graph.add_observations("default", [more("Ann", "sold it", replaces=["bought a zither"])])
    assert "Ann" not in found(await search.find("zither"))
    assert found(await search.find("sold"))[0] == "Ann"
    await file_graph.delete_entities("default", ["Ann"])
    assert "Ann" not in found(await search.find("sold"))


@pytest.mark.accepts("T12")
@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
async def test_types_and_project_are_applied_before_the_limit(
    file_graph: SqliteGraph, search: Search, mode: str
) -> None:
    for kind, cosine in (("near", 0.9), ("far", 0.1)):
        made = (new(f"{kind} {number}", "amber", kind=kind) for number in range(30))
        await place_all(file_graph, await created(file_graph, "default", *made), cosine)
    aliens = (new(f"alien {number}", "amber") for number in range(3))
    await place_all(file_graph, await created(file_graph, "other", *aliens), 0.95)
    answer = await search.find("amber", mode=mode, limit=5, entity_types=["far", "unknown"])  # type: ignore[arg-type]
    assert {hit.entity.entity_type for hit in answer.hits} == {"far"}
    assert len(answer.hits) == 5
    everything = await search.find("amber", mode=mode, limit=100, entity_types=[])  # type: ignore[arg-type]
    assert len(everything.hits) == 60
    assert not [name for name in found(everything) if name.startswith("alien")]


async def test_a_threshold_is_on_the_scale_from_0_to_1_and_counts_what_it_drops(
    file_graph: SqliteGraph, search: Search
) -> None:
    cosines = {"amber": 0.9, "half": 0.0, "opposite": -1.0}
    for entity in await created(file_graph, "default", *cosines):
        await place(file_graph, entity, cosines[entity.name])
    await created(file_graph, "default", "amber without vectors")

    async def asked(least: float | None, mode: str = "semantic") -> tuple[list[str], int]:
        answer = await search.find("amber", mode=mode, min_similarity=least)  # type: ignore[arg-type]
        return sorted(found(answer)), answer.dropped

    assert await asked(None) == (["amber", "half", "opposite"], 0)
    assert await asked(0) == (["amber", "half", "opposite"], 0), "0 is a value, and leaves nothing out"
    assert await asked(0.45) == (["amber", "half"], 1)
    assert await asked(0.6) == (["amber"], 2)
    assert await asked(0.96) == ([], 3)
    assert await asked(0.96, "hybrid") == (["amber without vectors"], 3)
    assert await asked(0.96, "keyword") == (["amber", "amber without vectors"], 0)
    hit = (await search.find("amber", mode="semantic")).hits[0]
    assert hit.similarity == pytest.approx(0.95, abs=1e-4)


async def test_a_hit_has_the_observation_that_matched(file_graph: SqliteGraph, search: Search) -> None:
    far, near, named = await created(
        file_graph,
        "default",
        new("far", "owns a horse", "plays chess and is riding horses"),
        new("near", "first", "second"),
        new("horse"),
    )
    await place(file_graph, near, 0.3, 0.2, 0.8)
    await place(file_graph, far, 0.2, 0.1, 0.1)
    await place(file_graph, named, 0.1)
    answer = await search.find("who rides horses")
    assert {hit.entity.name: hit.observation for hit in answer.hits} == {
        "near": "second",
        "far": "plays chess and is riding horses",
        "horse": None,
    }
    by_words = await search.find("chess", mode="keyword")
    assert by_words.hits[0].observation == "plays chess and is riding horses"


async def test_questions_in_plain_words_find_something_with_the_default_model(
    file_graph: SqliteGraph,
) -> None:
    provider = open_provider("wordllama", {})
    entities = await created(
        file_graph,
        "default",
        new("Marmalade", "is an orange tomcat", "takes a tablet for his thyroid", kind="pet"),
        new("Volvo", "has a diesel engine", "its plate is KX67", kind="vehicle"),
        new("gateway", "runs on Kubernetes", "its certificate expired", kind="service"),
    )
    await embed_all(file_graph, provider, entities)
    search = Search(file_graph, provider, "default", patience=60.0)
    assert found(await search.find("Which animal needs medicine?"))[0] == "Marmalade"
    assert found(await search.find("KX67"))[0] == "Volvo"
    answer = await search.find("Which automobile do we own?")
    assert (found(answer)[0], answer.mode, answer.provider) == ("Volvo", "hybrid", "wordllama")
    assert answer.model == provider.name
    assert answer.coverage is not None
    assert (answer.coverage.entities, answer.coverage.embedded) == (3, 3)
    assert await changed(file_graph, "default", "Volvo", "was sold")
    answer = await search.find("Which automobile was sold?")
    assert answer.coverage is not None
    assert (answer.coverage.entities, answer.coverage.embedded) == (3, 2)
