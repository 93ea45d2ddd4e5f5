"""The official client in this process, with the newest protocol and with the handshake of the older ones."""

import pytest
from mcp import Client
from support_memory.tool_calls import ENTITIES, failed, good
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.server import memory_server
from unstuck_memory.mcp.tools import tools

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_official_client_stores_and_finds(served: Served, mode: str, version: str) -> None:
    async with Client(memory_server(served, tools()), mode=mode) as client:
        assert client.protocol_version == version
        assert client.server_info is not None
        assert client.server_info.name == "unstuck-memory"
        assert client.instructions is not None
        assert len((await client.list_tools()).tools) == 22
        await good(client, "create_entities", entities=ENTITIES)
        await served.jobs.process_jobs(10)
        found = await good(client, "semantic_search", query="who plays the cello?")
        assert (found["searchType"], found["provider"], found["entities"][0]["name"]) == (
            "hybrid",
            "mock",
            "Ann",
        )
        assert "there is no entity 'Zoe'" in await failed(client, "get_entity_history", entityName="Zoe")
