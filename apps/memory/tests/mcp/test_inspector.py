"""The inspector's command line, another client than the official one: it lists the tools, and stores and finds by them."""

import json
import re
from pathlib import Path

import pytest
from support.waiting import until
from support_memory.inspector import Inspector
from support_memory.stdio_server import StdioServer
from support_memory.tool_calls import ENTITIES
from unstuck_memory.mcp.tools import tools

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
]  # it is fetched, and starts a server for each question


def test_the_inspector_lists_the_tools_stores_and_finds(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path)
    listed = inspector("tools/list")["tools"]
    assert [tool["name"] for tool in listed] == list(tools())
    assert all(tool["outputSchema"]["type"] == "object" for tool in listed)

    stored = inspector.call("create_entities", entities=json.dumps(ENTITIES))
    assert (stored["isError"], stored["structuredContent"]["created"]) == (False, 3)
    found = inspector.call("search_nodes", query="cello", limit="1", detail="names")
    assert [hit["name"] for hit in found["structuredContent"]["entities"]] == ["Ann"]
    assert found["content"][0]["text"].startswith("1 found by keyword search")
    wrong = inspector.call("open_nodes", nmaes="Ann")
    assert wrong["isError"]
    assert "'nmaes' is not an argument of open_nodes" in wrong["content"][0]["text"]


def test_the_inspector_asks_over_http(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path)
    with StdioServer(tmp_path, "--http", "127.0.0.1:0", "--no-worker") as server:
        line = re.compile(r"listening at (\S+)")
        url = until(lambda: line.search(server.errors.read_text()), 60.0, "the server listens")[1]
        at = (url, "--transport", "http")
        assert len(inspector("tools/list", server=at)["tools"]) == 22
        assert inspector.call("read_graph", server=at)["structuredContent"]["total"] == 0
