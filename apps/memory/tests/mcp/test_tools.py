"""Every tool of the table: with good arguments, and with all kinds of bad ones."""

import json
from typing import Any

import pytest
from mcp import Client
from support_memory.tool_calls import GOOD, LIVES, failed, good, length, text_of
from unstuck_memory.mcp.answer import USUAL
from unstuck_memory.mcp.opened import Options
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.tools import tools

pytestmark = pytest.mark.anyio

ALL = list(tools(debug=True))
CORE = [
    "create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations", "delete_relations",
    "semantic_search", "search_nodes", "open_nodes", "read_graph", "memory_status",
]  # fmt: skip
WRONG: dict[str, list[Any]] = {
    "string": [3, ["x"], {"a": 1}, True],
    "integer": ["3", 1.5, True, [1]],
    "number": ["0.5", True, [1]],
    "boolean": ["true", 1, []],
    "array": ["Ann", 3, {"a": 1}, [3], [None]],
    "object": ["Ann", 3, [1]],
}


SCHEMAS = {name: tool.input_schema for name, tool in tools(debug=True).items()}
EVERY = pytest.mark.parametrize("name", ALL)


@EVERY
async def test_a_good_call_has_lines_and_data_that_fit_the_schema(known: Client, name: str) -> None:
    result = await known.call_tool(name, GOOD[name])  # the client checks the data against the schema
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    assert "truncated" in result.structured_content
    assert text_of(result).strip()
    assert length(result) <= USUAL
    with pytest.raises(ValueError, match=r"Expecting|Extra"):  # not the data once more
        json.loads(text_of(result))


@EVERY
async def test_lists_and_objects_may_be_json_text(known: Client, name: str) -> None:
    texts = {
        key: json.dumps(value) if isinstance(value, list | dict) else value
        for key, value in GOOD[name].items()
    }
    await good(known, name, **texts)


@EVERY
async def test_null_for_an_optional_argument_is_as_if_it_was_left_out(known: Client, name: str) -> None:
    optional = [key for key in SCHEMAS[name]["properties"] if key not in SCHEMAS[name].get("required", [])]
    await good(known, name, **GOOD[name] | dict.fromkeys(optional))


async def test_a_tool_without_needs_takes_no_arguments_at_all(known: Client) -> None:
    for name in ALL:
        if not SCHEMAS[name].get("required"):
            assert not (await known.call_tool(name)).is_error, name


@EVERY
async def test_an_unknown_argument_is_refused_by_its_name(client: Client, name: str) -> None:
    line = await failed(client, name, **GOOD[name], entitys=[])
    assert f"'entitys' is not an argument of {name}" in line
    assert all(known in line for known in GOOD[name])


@EVERY
async def test_a_missing_argument_and_null_are_named(client: Client, name: str) -> None:
    for missing in SCHEMAS[name].get("required", []):
        rest = {key: value for key, value in GOOD[name].items() if key != missing}
        line = await failed(client, name, **rest)
        assert line.startswith(f"{missing} is missing: {name} needs it, ")
        line = await failed(client, name, **rest, **{missing: None})
        assert line.startswith(f"{missing} is null: it must be ")


@EVERY
async def test_a_value_of_a_wrong_type_is_one_line_that_names_it(client: Client, name: str) -> None:
    for argument, schema in SCHEMAS[name]["properties"].items():
        for value in WRONG[schema.get("type", "string")]:
            line = await failed(client, name, **GOOD[name] | {argument: value})
            assert line.startswith(argument), line
            assert "must be" in line or "is missing" in line


@pytest.mark.parametrize(
    "name", [name for name in ALL if "limit" in GOOD[name] and name != "force_generate_embedding"]
)
async def test_a_limit_out_of_its_range_is_refused(client: Client, name: str) -> None:
    for limit in (0, -1, 1.5, 10**9, 10**400):
        line = await failed(client, name, **GOOD[name] | {"limit": limit})
        assert line.startswith("limit is ")
        assert "a whole number from 1 to 1000" in line


async def test_whole_numbers_may_have_a_decimal_point(known: Client) -> None:
    """In JSON, 2.0 is as whole as 2, and some hosts write numbers so."""
    assert len((await good(known, "read_graph", limit=2.0))["entities"]) == 2
    assert len((await good(known, "get_graph_at_time", timestamp=1.9e12))["entities"]) == 3
    line = await failed(known, "get_graph_at_time", timestamp=1e15)
    assert line.startswith("timestamp is 1000000000000000: it must be milliseconds")


NESTED: list[tuple[str, dict[str, Any], str]] = [
    ("create_entities", {"entities": [GOOD["create_entities"]["entities"][0] | {"kind": "x"}]}, "'entities[0].kind' is not an argument of create_entities: entities[0] takes name, "),
    ("create_entities", {"entities": [{"name": "Bob", "entityType": "person"}]}, "entities[0].observations is missing: create_entities needs it, a list of texts"),
    ("create_entities", {"entities": [{"name": None, "entityType": "t", "observations": []}]}, "entities[0].name is null: it must be a text"),
    ("create_entities", {"entities": [{"name": "Bob", "entityType": "t", "observations": ["x", 7]}]}, "entities[0].observations[1] is 7: it must be a text"),
    ("create_entities", {"entities": [{"name": " ", "entityType": "t", "observations": []}]}, "entities[0].name is empty: 1 to 200 characters"),
    ("create_relations", {"relations": [LIVES | {"strength": 1.5}]}, "relations[0].strength is 1.5: it must be a number from 0 to 1"),
    ("create_relations", {"relations": [LIVES | {"metadata": [1]}]}, "relations[0].metadata is a list: it must be an object"),
    ("update_relation", {"relation": {"from": "Ann"}}, "relation.to is missing: update_relation needs it"),
    ("add_observations", {"observations": [{"entityName": "Ann", "contents": ["x"], "replaces": "x"}]}, "observations[0].replaces is 'x': it must be a list of texts"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "line"), NESTED)
async def test_what_is_wrong_within_an_item_is_named_by_its_place_and_nothing_is_written(
    client: Client, served: Served, name: str, arguments: dict[str, Any], line: str
) -> None:
    assert (await failed(client, name, **arguments)).startswith(line)
    assert (await served.graph.size("default")).entities == 0


async def test_lists_and_objects_within_an_item_may_be_json_text(known: Client) -> None:
    dan = json.dumps({"name": "Dan", "entityType": "person", "observations": '["tall", "kind"]'})
    await good(known, "create_entities", entities=[dan])
    assert (await good(known, "open_nodes", names=["Dan"]))["entities"][0]["observations"] == ["tall", "kind"]
    await good(known, "create_relations", relations=[LIVES | {"metadata": '{"since": 2020}'}])
    assert (await good(known, "get_relation", **LIVES))["relations"][0]["metadata"] == {"since": 2020}


async def test_a_time_in_seconds_is_noticed(client: Client) -> None:
    for tool, argument in (("get_graph_at_time", "timestamp"), ("get_decayed_graph", "reference_time")):
        line = await failed(client, tool, **{argument: 1_795_000_000})
        assert line.startswith(f"{argument} is 1795000000: it must be milliseconds")
        assert "multiply it by 1000" in line


def test_debug_tools_are_listed_only_if_debug_is_true() -> None:
    for value, count in (("true", 24), ("1", 22), ("", 22)):
        assert len(Options().listed({"DEBUG": value})) == count
    assert len(Options(tools="core").listed({"DEBUG": "true"})) == 13


async def test_text_that_is_no_json_is_no_list(client: Client) -> None:
    for value in ("Ann", "[", "[" * 10_000, '"Ann"', "{}"):
        assert (await failed(client, "open_nodes", names=value)).startswith("names is ")


async def test_an_unknown_tool_is_a_failure_that_names_those_that_there_are(client: Client) -> None:
    line = await failed(client, "read_grph")
    assert "'read_grph'" in line
    assert all(name in line for name in ALL)


async def test_an_error_that_nobody_expected_is_one_line_with_its_class(
    client: Client, served: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(served.memory, "size", broken)
    line = await failed(client, "read_graph")
    assert "ZeroDivisionError: division by zero" in line
    [record] = [record for record in caplog.records if record.name == "unstuck_memory.mcp"]
    assert record.exc_info is not None


async def test_every_tool_is_described_and_annotated_and_the_list_is_short(client: Client) -> None:
    found = await client.list_tools()
    assert [tool.name for tool in found.tools] == ALL
    for tool in found.tools:
        assert "Use it " in (tool.description or "")
        assert tool.output_schema is not None
        assert "truncated" in tool.output_schema["properties"]
        hints = tool.annotations
        assert hints is not None
        assert hints.open_world_hint is False
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) != (None, None, None)
        assert hints.read_only_hint == tool.name.startswith(
            ("get_", "read_", "open_", "search", "semantic", "list_", "memory_", "debug_", "diagnose_")
        )
        assert hints.destructive_hint == tool.name.startswith(("delete_", "merge_"))
    assert len(found.model_dump_json(by_alias=True, exclude_none=True)) <= 30_000


async def test_the_core_is_small_and_debug_tools_are_only_there_for_those_who_debug(served: Any) -> None:
    from unstuck_memory.mcp.server import memory_server

    async with Client(memory_server(served, tools("core"))) as client:
        found = await client.list_tools()
        assert sorted(tool.name for tool in found.tools) == sorted(CORE)
        assert len(found.model_dump_json(by_alias=True, exclude_none=True)) <= 12_000
        assert "there is no tool 'get_relation'" in await failed(
            client, "get_relation", **GOOD["get_relation"]
        )
        assert client.instructions is not None
        assert "Recall" in client.instructions
        assert "Store" in client.instructions
    assert set(ALL) - set(tools()) == {"debug_embedding_config", "diagnose_vector_search"}
