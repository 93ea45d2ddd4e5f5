"""All tools, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from unstuck_memory.mcp.tool import Tool
from unstuck_memory.mcp.tools import (
    debugging,
    deleting,
    embeddings,
    history,
    reading,
    searching,
    status,
    writing,
)

_TOOLS = (
    writing.create_entities,
    writing.create_relations,
    writing.add_observations,
    deleting.delete_entities,
    deleting.delete_observations,
    deleting.delete_relations,
    writing.update_relation,
    writing.merge_entities,
    searching.semantic_search,
    searching.search_nodes,
    reading.open_nodes,
    reading.read_graph,
    reading.get_relation,
    history.get_entity_history,
    history.get_relation_history,
    reading.get_graph_at_time,
    reading.get_decayed_graph,
    status.memory_status,
    embeddings.get_entity_embedding,
    embeddings.force_generate_embedding,
    embeddings.list_failed_embeddings,
    embeddings.retry_failed_embeddings,
    debugging.debug_embedding_config,
    debugging.diagnose_vector_search,
)


def tools(which: Literal["core", "all"] = "all", *, debug: bool = False) -> Mapping[str, Tool]:
    """The tools of a server by their names: the few that most need, or all; with ``debug``, those for debugging too."""
    groups = {"core"} | ({"all"} if which == "all" else set()) | ({"debug"} if debug else set())
    return {tool.name: tool for tool in _TOOLS if tool.group in groups}
