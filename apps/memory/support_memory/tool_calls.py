"""Calls of MCP tools as tests make them: good arguments of every tool, and readable answers."""

from typing import Any

from mcp import Client
from mcp_types import CallToolResult, TextContent

ENTITIES: list[dict[str, Any]] = [
    {"name": "Ann", "entityType": "person", "observations": ["plays the cello", "lives in Lyon"]},
    {"name": "Acme", "entityType": "company", "observations": ["makes anvils"]},
    {"name": "Lyon", "entityType": "city", "observations": []},
]
WORKS = {"from": "Ann", "to": "Acme", "relationType": "works at"}
LIVES = {"from": "Ann", "to": "Lyon", "relationType": "lives in"}

GOOD: dict[str, dict[str, Any]] = {
    "create_entities": {"entities": [{"name": "Bob", "entityType": "person", "observations": ["tall"]}]},
    "create_relations": {"relations": [LIVES | {"strength": 0.9, "metadata": {"since": 2020}}]},
    "add_observations": {
        "observations": [{"entityName": "Ann", "contents": ["lives in Nice"], "replaces": ["lives in Lyon"]}]
    },
    "delete_entities": {"entityNames": ["Acme"]},
    "delete_observations": {"deletions": [{"entityName": "Ann", "observations": ["plays the cello"]}]},
    "delete_relations": {"relations": [WORKS]},
    "update_relation": {"relation": WORKS | {"confidence": 0.7}},
    "merge_entities": {"source": "Acme", "into": "Ann", "dry_run": True},
    "semantic_search": {
        "query": "who plays the cello?", "limit": 5, "min_similarity": 0.1, "entity_types": ["person"], "hybrid_search": True,
        "semantic_weight": 0.5, "detail": "full",
    },
    "search_nodes": {"query": "cello", "limit": 5, "detail": "names"},
    "open_nodes": {"names": ["Ann", "Zoe"], "limit": 5, "detail": "full"},
    "read_graph": {"random_string": "x", "limit": 5, "detail": "full"},
    "get_relation": WORKS,
    "get_entity_history": {"entityName": "Ann", "limit": 5},
    "get_relation_history": WORKS | {"limit": 5},
    "get_graph_at_time": {"timestamp": 1_900_000_000_000, "limit": 5, "detail": "full"},
    "get_decayed_graph": {"reference_time": 1_900_000_000_000, "decay_factor": -1e-9, "limit": 5},
    "memory_status": {"random_string": "x"},
    "get_entity_embedding": {"entity_name": "Ann"},
    "force_generate_embedding": {"entity_name": "Ann", "limit": 3},
    "list_failed_embeddings": {"limit": 5},
    "retry_failed_embeddings": {"names": ["Ann"]},
    "debug_embedding_config": {"random_string": "x"},
    "diagnose_vector_search": {"random_string": "x"},
}  # fmt: skip


async def filled(client: Client) -> None:
    """Store three entities and a relation."""
    await good(client, "create_entities", entities=ENTITIES)
    await good(client, "create_relations", relations=[WORKS | {"confidence": 0.5}])


async def good(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of an answer that is no failure."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def failed(client: Client, tool: str, **arguments: Any) -> str:
    """The line of an answer that is a failure."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    assert result.structured_content is None
    line = text_of(result)
    assert "\n" not in line, line
    return line


def text_of(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def length(result: CallToolResult) -> int:
    """The characters of an answer as it is sent."""
    return len(result.model_dump_json(by_alias=True, exclude_none=True))
