"""The files of the README for assistants: each starts a server that remembers a fact from nothing."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from support_memory.command import NAMES, run

pytestmark = pytest.mark.anyio
README = (Path(__file__).parents[1] / "README.md").read_text()
KEYS = {
    "claude_desktop_config.json": "mcpServers", ".mcp.json": "mcpServers", ".cursor/mcp.json": "mcpServers",
    ".vscode/mcp.json": "servers",
}  # fmt: skip
UVX = ["uvx", "unstuck-memory", "mcp"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A first start, with a uvx that runs what is installed here."""
    (tmp_path / "uvx").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "uvx").chmod(0o755)
    found = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    path = f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return found | {"PATH": path, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}


def files() -> dict[str, Any]:
    """Each file by the name that stands before it."""
    before, *texts = README.split("```json\n")
    found = {}
    for text in texts:
        name = re.findall(r"`([\w./~-]*\.json)`", before)[-1]
        found[name] = json.loads(text.partition("```")[0])
        before = text
    return found


def test_there_is_a_file_for_each_client_with_the_key_that_it_reads() -> None:
    found = files()
    assert README.count("```json\n") == len(found)
    assert {name: list(file) for name, file in found.items()} == {name: [key] for name, key in KEYS.items()}
    for name, file in found.items():
        [server] = file[KEYS[name]].values()
        assert [server["command"], *server["args"]][:3] == UVX
        assert server.get("type", "stdio") == "stdio"
    [line] = re.findall(r"^claude mcp add (.*)$", README, re.MULTILINE)
    options, _, command = line.partition(" -- ")
    assert (options.split(), shlex.split(command)) == (["--scope", "user", "memory"], UVX)


@pytest.mark.parametrize(
    "name", ["claude_desktop_config.json", ".mcp.json"]
)  # the others have the same command
async def test_a_file_starts_a_server_that_remembers(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    [server] = files()[name][KEYS[name]].values()
    started = StdioServerParameters(command=server["command"], args=server["args"], env=environ, cwd=tmp_path)
    ann = {"name": "Ann", "entityType": "person", "observations": ["plays the cello"]}
    async with Client(started) as client:
        assert not (await client.call_tool("create_entities", {"entities": [ann]})).is_error
    async with Client(started) as client:  # another conversation
        found = await client.call_tool("semantic_search", {"query": "Which instrument does Ann play?"})
    assert found.structured_content is not None
    assert [hit["name"] for hit in found.structured_content["entities"]] == ["Ann"]
    project = server["args"][2:]  # --project shop
    assert "plays the cello" in run(tmp_path, "search", "cello", "--mode", "keyword", *project).stdout
