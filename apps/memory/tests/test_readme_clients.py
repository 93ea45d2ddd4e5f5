"""The files of the README for assistants: each starts a server that remembers a fact from nothing."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from support.waiting import until
from support_memory.command import NAMES, run
from support_memory.stdio_server import StdioServer, environment

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
    [line, _] = re.findall(r"^claude mcp add (.*)$", README, re.MULTILINE)
    options, _, command = line.partition(" -- ")
    assert (options.split(), shlex.split(command)) == (["--scope", "user", "memory"], UVX)


def commands() -> dict[str, Any]:
    """The command of each file, and the one without uv."""
    found = {name: next(iter(file[KEYS[name]].values())) for name, file in files().items()}
    [without] = re.findall(r"`pipx install unstuck-memory`.* has `(.*)`", README)
    return found | {"pipx": json.loads(f"{{{without}}}")}


@pytest.mark.parametrize(
    "name", ["claude_desktop_config.json", ".mcp.json", "pipx"]
)  # the others have the same command
async def test_a_file_starts_a_server_that_remembers(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    server = commands()[name]
    started = StdioServerParameters(command=server["command"], args=server["args"], env=environ, cwd=tmp_path)
    ann = {"name": "Ann", "entityType": "person", "observations": ["plays the cello"]}
    async with Client(started) as client:
        assert not (await client.call_tool("create_entities", {"entities": [ann]})).is_error
    async with Client(started) as client:  # another conversation
        found = await client.call_tool("semantic_search", {"query": "Which instrument does Ann play?"})
    assert found.structured_content is not None
    assert [hit["name"] for hit in found.structured_content["entities"]] == ["Ann"]
    project = [] if name == "pipx" else server["args"][2:]  # --project shop
    assert "plays the cello" in run(tmp_path, "search", "cello", "--mode", "keyword", *project).stdout


def test_the_lines_for_other_machines_start_a_server_that_they_can_reach_with_the_token(
    tmp_path: Path,
) -> None:
    block = README.partition("```sh\nexport UNSTUCK_MEMORY_TOKEN=")[2].partition("```")[0]
    _, line, add = block.splitlines()
    names, _, command = line.partition(" unstuck-memory mcp ")
    host = names.removeprefix("UNSTUCK_MEMORY_HOSTS=")
    token = "0123456789abcdef" * 4
    env = environment(tmp_path, UNSTUCK_MEMORY_HOSTS=host, UNSTUCK_MEMORY_TOKEN=token)
    with StdioServer(tmp_path, *command.replace(":8765", ":0").split(), env=env) as server:
        listens = re.compile(r"listening at http://0\.0\.0\.0:(\d+)(/mcp)")
        port, path = until(lambda: listens.search(server.errors.read_text()), 60.0, "it listens").groups()
        *_, url, _, header = shlex.split(add.replace("$UNSTUCK_MEMORY_TOKEN", token))
        assert url == f"https://{host}{path}"
        name, _, value = header.partition(": ")
        here, ping = f"http://127.0.0.1:{port}{path}", {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"Host": host, "Accept": "application/json, text/event-stream"}
        assert httpx.post(here, json=ping, headers=headers).status_code == 401
        assert httpx.post(here, json=ping, headers=headers | {name: value}).json()["result"] == {}
