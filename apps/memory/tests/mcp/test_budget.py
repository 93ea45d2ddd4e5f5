"""No answer exceeds its budget, and what is left out of one is in the next."""

import json
import re
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult
from support_memory.tool_calls import GOOD, good, length, text_of
from unstuck_memory.errors import SettingsError
from unstuck_memory.mcp.answer import Answer, AnswerTooSmall, answer_budget
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.tools import tools

from unstuck import ConfigError

pytestmark = pytest.mark.anyio

TOOLS = tools(debug=True)
PIECE = re.compile(r"… \[characters ([\d,]+) to ([\d,]+) of ([\d,]+)\]$")
HARD = '"\\ \n\t\x01 é 漢 🎻 '  # characters that JSON escapes, and others


async def pages(client: Client, served: Served, tool: str, **arguments: Any) -> list[CallToolResult]:
    """All pages of an answer, each within the budget."""
    found: list[CallToolResult] = []
    while True:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, text_of(result)
        assert length(result) <= served.budget
        found.append(result)
        data = result.structured_content
        assert data["truncated"] == ("next_cursor" in data)
        if not data["truncated"]:
            return found
        assert data["next_cursor"] in text_of(result)
        arguments["cursor"] = data["next_cursor"]


def whole(results: list[CallToolResult]) -> dict[str, list[str]]:
    """The observations of all entities, put together from all pages."""
    found: dict[str, list[str]] = {}
    pieces = ""
    for result in results:
        for entity in result.structured_content["entities"]:
            texts = found.setdefault(entity["name"], [])
            for text in entity["observations"]:
                piece = PIECE.search(text)
                if piece is None:
                    texts.append(text)
                    continue
                start, end, size = (int(number.replace(",", "")) for number in piece.groups())
                assert start == len(pieces) + 1
                pieces += text[: piece.start()]
                assert end == len(pieces)
                if end == size:
                    texts.append(pieces)
                    pieces = ""
    assert pieces == ""
    return found


@pytest.mark.accepts("T13")
@pytest.mark.parametrize("budget", [1_000, 2_500, 20_000, 200_000])
async def test_a_large_graph_is_read_page_by_page_and_nothing_is_lost(
    client: Client, served: Served, budget: int
) -> None:
    stored = {
        "Ann": [f"fact {number} {HARD}" for number in range(40)],
        "Big": [HARD.strip() + "x" * 9_970, "short", "y" * 3_000],
        "Cid": [],
        "Dee \n\"'": ["one"],
        **{f"Item {number:03}": [f"is number {number}"] for number in range(60)},
    }
    entities = [
        {"name": name, "entityType": "thing", "observations": texts} for name, texts in stored.items()
    ]
    relations = [
        {"from": "Ann", "to": f"Item {number:03}", "relationType": "knows", "metadata": {"x": "z" * 50}}
        for number in range(60)
    ]
    await good(client, "create_entities", entities=entities)
    await good(client, "create_relations", relations=relations)
    served.budget = budget

    results = await pages(client, served, "read_graph")
    assert whole(results) == stored
    ends = {relation["to"] for result in results for relation in result.structured_content["relations"]}
    assert ends == {f"Item {number:03}" for number in range(60)}
    assert whole(await pages(client, served, "open_nodes", names=list(stored))) == stored
    assert whole(await pages(client, served, "get_graph_at_time", timestamp=1_900_000_000_000)) == stored
    assert whole(await pages(client, served, "get_entity_history", entityName="Big")) == {
        "Big": stored["Big"]
    }
    names = await pages(client, served, "read_graph", detail="names", limit=7)
    assert [entity["name"] for result in names for entity in result.structured_content["entities"]] == sorted(
        stored
    )


@pytest.mark.parametrize("budget", [1_000, 20_000])
async def test_the_first_hit_is_within_the_budget_and_hides_no_others(
    client: Client, served: Served, budget: int
) -> None:
    entities = [
        {
            "name": f"Ann {number}",
            "entityType": "person",
            "observations": ["cello " + "x" * 9_000, "y" * 9_000],
        }
        for number in range(12)
    ]
    await good(client, "create_entities", entities=entities)
    await served.jobs.process_jobs(20)
    served.budget = budget

    for tool in ("search_nodes", "semantic_search"):
        results = await pages(client, served, tool, query="cello", limit=5)
        hits = [entity for result in results for entity in result.structured_content["entities"]]
        assert [hit["rank"] for hit in hits] == list(range(1, 13))
        assert len({hit["name"] for hit in hits}) == 12
        if budget == 20_000:
            assert len(results[0].structured_content["entities"]) == 5
            assert "of 9,006]" in hits[0]["observations"][0]


@pytest.mark.accepts("T13")
@pytest.mark.parametrize("name", GOOD)
async def test_no_tool_but_get_entity_embedding_answers_a_vector(known: Client, name: str) -> None:
    data = await good(known, name, **GOOD[name])
    assert (len(re.findall(r"-?0\.\d{5,}", json.dumps(data))) > 30) == (name == "get_entity_embedding")


async def test_a_long_vector_comes_in_pages(known: Client, served: Served) -> None:
    served.budget = 1_000
    results = await pages(known, served, "get_entity_embedding", entity_name="Lyon")
    assert len(results) > 1
    assert sum(len(result.structured_content["embedding"]) for result in results) == 64


@pytest.mark.parametrize("character", ["x", "\x01", '"', "\\", "漢", "🎻", "\x7f"])
async def test_the_longest_names_fit_into_the_usual_budget_whatever_is_in_them(
    client: Client, served: Served, character: str
) -> None:
    """Cursors have names in them, and what JSON escapes is longer than it looks."""
    names = [character * 198 + f"{number:02}" for number in range(12)]
    entities = [
        {"name": name, "entityType": character * 199 + "t", "observations": [character * 2_000 + "."]}
        for name in names
    ]
    relations = [
        {"from": one, "to": other, "relationType": character * 199 + "r", "metadata": {"x": character * 900}}
        for one in names[:3]
        for other in names
    ]
    await good(client, "create_entities", entities=entities)
    await good(client, "create_relations", relations=relations)
    for tool, arguments in (
        ("read_graph", {}), ("open_nodes", {"names": names}), ("get_graph_at_time", {"timestamp": 1_900_000_000_000}),
        ("get_decayed_graph", {}),
    ):  # fmt: skip
        results = await pages(client, served, tool, **arguments)
        assert whole(results) == {entity["name"]: entity["observations"] for entity in entities}
        seen = {
            (relation["from"], relation["to"])
            for result in results
            for relation in result.structured_content["relations"]
        }
        assert len(seen) == len(relations)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in GOOD
        if name.startswith(("create", "add", "delete", "update", "merge", "force", "list", "retry"))
    ],
)
async def test_what_was_written_is_no_failure_because_its_answer_is_long(
    known: Client, served: Served, name: str
) -> None:
    served.budget = 1_000
    await good(known, name, **GOOD[name])


async def test_a_long_answer_of_a_write_has_true_numbers_and_its_problems_first(
    client: Client, served: Served
) -> None:
    served.budget = 1_000
    entities = [
        {"name": f"Ann {number:03} {HARD * 5}", "entityType": "person", "observations": ["x"]}
        for number in range(200)
    ]
    result = await client.call_tool("create_entities", {"entities": entities})
    assert length(result) <= 1_000
    assert (result.structured_content["created"], result.structured_content["truncated"]) == (200, True)

    observations = [{"entityName": entity["name"], "contents": ["y"]} for entity in entities]
    observations.append({"entityName": "Eve", "contents": ["y"]})
    result = await client.call_tool("add_observations", {"observations": observations})
    assert length(result) <= 1_000
    assert "Eve" in result.structured_content["items"][0]["problem"]
    assert (result.structured_content["changed"], result.structured_content["problems"]) == (200, 1)


async def test_a_failure_is_within_the_budget_too(client: Client, served: Served) -> None:
    served.budget = 1_000
    result = await client.call_tool("open_nodes", {"names": [], "\x01" * 3_000: 1})
    assert result.is_error
    assert length(result) <= 1_000
    result = await client.call_tool("x" * 5_000, {})
    assert result.is_error
    assert length(result) <= 1_000


async def test_metadata_that_no_answer_could_hold_are_left_out_with_their_length(
    known: Client, served: Served
) -> None:
    metadata = {"text": "x" * 60_000}
    await good(known, "update_relation", relation=GOOD["get_relation"] | {"metadata": metadata})
    data = await good(known, "get_relation", **GOOD["get_relation"])
    assert data["relations"][0]["metadata"] == {"left out": "60,012 characters"}
    results = await pages(known, served, "read_graph")
    assert sum(len(result.structured_content["relations"]) for result in results) == 1
    served.budget = 200_000
    data = await good(known, "get_relation", **GOOD["get_relation"])
    assert data["relations"][0]["metadata"] == metadata


@pytest.mark.accepts("T13")
async def test_all_relations_of_a_hub_can_be_read(client: Client, served: Served) -> None:
    for first in range(0, 2_500, 500):
        names = [f"Spoke {number:04}" for number in range(first, first + 500)]
        entities = [{"name": name, "entityType": "spoke", "observations": []} for name in [*names, "Hub"]]
        await good(client, "create_entities", entities=entities)
        relations = [{"from": "Hub", "to": name, "relationType": "holds"} for name in names]
        await good(client, "create_relations", relations=relations)
    served.budget = 200_000
    results = await pages(client, served, "open_nodes", names=["Hub"])
    ends = [relation["to"] for result in results for relation in result.structured_content["relations"]]
    assert ends == [f"Spoke {number:04}" for number in range(2_500)]


async def test_many_names_that_are_not_found_leave_room_for_those_that_are(
    known: Client, served: Served
) -> None:
    served.budget = 1_000
    unknown = [f"{number:03} {HARD * 12}".strip() for number in range(300)]
    data = await good(known, "open_nodes", names=[*unknown, "Lyon"])
    assert data["entities"][0]["name"] == "Lyon"
    assert data["missing"] == 300


async def test_a_cursor_of_another_question_is_refused(known: Client) -> None:
    cursor = (await good(known, "read_graph", limit=1))["next_cursor"]
    others = {
        name: arguments
        for name, arguments in GOOD.items()
        if "cursor" in TOOLS[name].input_schema["properties"]
    }
    assert len(others) == 10
    for name, arguments in others.items():
        result = await known.call_tool(name, arguments | {"cursor": cursor})
        assert result.is_error, name
        assert "another question" in text_of(result)
    result = await known.call_tool("read_graph", {"cursor": "é" * 5_000})
    assert "cursor has 5,000 characters" in text_of(result)


def test_an_answer_that_would_exceed_its_budget_all_the_same_is_not_sent() -> None:
    with pytest.raises(AnswerTooSmall, match="1,000 to 200,000"):
        Answer(1_000, "items").result(next_cursor="x" * 900)


def test_the_budget_comes_from_the_environment_within_its_range() -> None:
    assert answer_budget({}) == 20_000
    assert answer_budget({"UNSTUCK_MEMORY_ANSWER": "1000"}) == 1_000
    for wrong in ("999", "200001", "x", "0"):
        with pytest.raises((ConfigError, SettingsError), match=r"UNSTUCK_MEMORY_ANSWER.*1000"):
            answer_budget({"UNSTUCK_MEMORY_ANSWER": wrong})
