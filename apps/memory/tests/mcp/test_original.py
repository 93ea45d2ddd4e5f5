"""The original's tools: all of them are there, under their names, with their arguments; what was added is optional."""

from typing import Any

import pytest
from mcp import Client
from support_memory.tool_calls import GOOD, LIVES, WORKS, good, text_of
from unstuck_memory.mcp.tools import tools

pytestmark = pytest.mark.anyio

TEXT, NUMBER, TEXTS, OBJECT, FLAG = "string", "number", "array", "object", "boolean"
OWN: dict[str, Any] = {
    "id": TEXT, "version": NUMBER, "createdAt": NUMBER, "updatedAt": NUMBER, "validFrom": NUMBER, "validTo": NUMBER, "changedBy": TEXT,
}  # fmt: skip
SURE = {"strength": NUMBER, "confidence": NUMBER, "metadata": OBJECT}
KEY = {"from*": TEXT, "to*": TEXT, "relationType*": TEXT}
RANDOM = {"random_string": TEXT}
ORIGINAL: dict[str, dict[str, Any]] = {
    "create_entities": {"entities*": [{"name*": TEXT, "entityType*": TEXT, "observations*": TEXTS} | OWN]},
    "create_relations": {"relations*": [KEY | SURE | OWN]},
    "add_observations": {"observations*": [{"entityName*": TEXT, "contents*": TEXTS} | SURE]} | SURE,
    "delete_entities": {"entityNames*": TEXTS},
    "delete_observations": {"deletions*": [{"entityName*": TEXT, "observations*": TEXTS}]},
    "delete_relations": {"relations*": [KEY]},
    "get_relation": KEY,
    "update_relation": {"relation*": KEY | SURE | OWN},
    "read_graph": RANDOM,
    "search_nodes": {"query*": TEXT},
    "open_nodes": {"names*": TEXTS},
    "semantic_search": {
        "query*": TEXT, "limit": NUMBER, "min_similarity": NUMBER, "entity_types": TEXTS, "hybrid_search": FLAG, "semantic_weight": NUMBER,
    },
    "get_entity_embedding": {"entity_name*": TEXT},
    "get_entity_history": {"entityName*": TEXT},
    "get_relation_history": KEY,
    "get_graph_at_time": {"timestamp*": NUMBER},
    "get_decayed_graph": {"reference_time": NUMBER, "decay_factor": NUMBER},
    "force_generate_embedding": {"entity_name": TEXT, "limit": NUMBER},
    "debug_embedding_config": RANDOM,
    "diagnose_vector_search": RANDOM,
}  # fmt: skip
ADDED = {"limit", "cursor", "detail", "replaces"}
STAMPS = {
    "id": "x", "version": 3, "createdAt": 1_700_000_000_000, "updatedAt": 1.7e12, "validFrom": 1, "validTo": None, "changedBy": "Eve",
}  # fmt: skip


def agree(schema: dict[str, Any], original: dict[str, Any]) -> None:
    """Whether a schema takes these arguments, needs the same of them, and adds only what may be added."""
    needed = {name.removesuffix("*") for name in original if name.endswith("*")}
    assert set(schema.get("required", [])) == needed
    wanted = {name.removesuffix("*"): kind for name, kind in original.items()}
    assert set(schema["properties"]) - set(wanted) <= ADDED
    for name, kind in wanted.items():
        found = schema["properties"][name]
        if isinstance(kind, list):
            assert found["type"] == "array"
            agree(found["items"], kind[0])
        elif isinstance(kind, dict):
            agree(found, kind)
        else:
            assert found["type"] in {kind, "integer" if kind == NUMBER else kind}


def test_the_twenty_tools_of_the_original_have_their_names_and_arguments() -> None:
    found = tools(debug=True)
    assert len(ORIGINAL) == 20
    assert set(found) - set(ORIGINAL) == {
        "memory_status", "list_failed_embeddings", "retry_failed_embeddings", "merge_entities",
    }  # fmt: skip
    for name, original in ORIGINAL.items():
        agree(found[name].input_schema, original)


async def test_what_the_original_took_and_did_not_store_is_taken_and_named(known: Client) -> None:
    sure = {"strength": 0.9, "confidence": 0.95, "metadata": {"source": "API call"}}
    bob = GOOD["create_entities"]["entities"][0] | STAMPS
    calls: dict[str, dict[str, Any]] = {
        "create_entities": {"entities": [bob]},
        "create_relations": {"relations": [LIVES | sure | STAMPS]},
        "update_relation": {"relation": WORKS | sure | STAMPS},
        "add_observations": {"observations": [{"entityName": "Ann", "contents": ["tall"]} | sure]} | sure,
    }
    for name, arguments in calls.items():
        result = await known.call_tool(name, arguments)
        assert not result.is_error, text_of(result)
        [line] = [line for line in text_of(result).splitlines() if line.startswith("not stored")]
        assert ("createdAt" in line, "strength" in line) == (
            name != "add_observations",
            name == "add_observations",
        )
    [bob] = (await good(known, "get_entity_history", entityName="Bob"))["entities"]
    assert (bob["version"], bob["changedBy"]) == (1, "Eve")
    assert bob["createdAt"] > STAMPS["createdAt"]
