"""The server over standard input and output, as a process of its own."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from mcp import Client, StdioServerParameters
from support.waiting import until, until_async
from support_memory.embedding_server import EmbeddingServer, Stall
from support_memory.stdio_server import COMMAND, StdioServer, environment
from support_memory.tool_calls import ENTITIES, good

from unstuck import Filter, Jobs

PATIENCE = 60.0

NOISY = """
import os, subprocess, sys
import unstuck_memory.memory as memory
size = memory.Memory.size
async def noisy(self):
    print("noise of print", flush=True)
    os.write(1, b"noise of a descriptor\\n")
    subprocess.run(["echo", "noise of a child"])
    subprocess.run(["cat"])  # which must not eat the messages
    return await size(self)
memory.Memory.size = noisy
from unstuck_memory.cli import main
main()
"""


@pytest.fixture
def provider() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as provider:
        yield provider


def hosted(folder: Path, provider: EmbeddingServer) -> dict[str, str]:
    """The environment of a server that asks this provider, as often as it likes."""
    return environment(
        folder,
        UNSTUCK_MEMORY_EMBEDDINGS="openai",
        OPENAI_API_KEY="key",
        OPENAI_BASE_URL=provider.url,
        OPENAI_EMBEDDING_MODEL="m",
        EMBEDDING_RATE_LIMIT_TOKENS="1000000",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_first_start_needs_no_settings_and_embeds_by_itself(tmp_path: Path, mode: str) -> None:
    [command, *arguments] = COMMAND
    (tmp_path / "elsewhere").mkdir()
    started = StdioServerParameters(
        command=command, args=arguments, env=environment(tmp_path), cwd=tmp_path / "elsewhere"
    )
    async with Client(started, mode=mode) as client:
        assert client.instructions is not None
        assert len((await client.list_tools()).tools) == 22
        await good(client, "create_entities", entities=ENTITIES)

        async def embedded() -> bool:
            status = await good(client, "memory_status")
            return bool(status["embedded"] == len(ENTITIES) and status["worker_alive"])

        await until_async(embedded, PATIENCE, "all entities are embedded")
        found = await good(client, "semantic_search", query="who plays the cello?")
        assert found["searchType"] == "hybrid"
        assert found["entities"][0]["name"] == "Ann"

    assert list((tmp_path / "elsewhere").iterdir()) == []
    folder = tmp_path / "unstuck-memory"
    assert "EMBED_JOB_RETENTION_DAYS = 14" in (folder / "settings.toml").read_text()
    assert {path.name for path in folder.iterdir()} >= {"graph.db", "jobs.db", "settings.toml"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_nothing_but_messages_is_written_to_standard_output(tmp_path: Path) -> None:
    with StdioServer(tmp_path, "mcp", "--no-worker", command=(sys.executable, "-c", NOISY)) as server:
        server.hello()
        assert server.call("read_graph")["total"] == 0
        assert server.call("read_graph")["total"] == 0
        server.end_input()
        assert server.wait() == 0
    assert [json.loads(line)["jsonrpc"] for line in server.output] == ["2.0"] * 3
    errors = server.errors.read_text()
    assert all(f"noise of {what}" in errors for what in ("print", "a descriptor", "a child"))


def test_a_message_that_is_too_long_or_broken_is_refused_and_the_next_one_is_answered(tmp_path: Path) -> None:
    with StdioServer(tmp_path, "--no-worker") as server:
        server.hello()
        params = {"name": "search_nodes", "arguments": {"query": 'x"id":77,' * 600_000}}
        for message in (
            {"jsonrpc": "2.0", "id": 41, "method": "tools/call", "params": params},
            {"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": 41},
        ):
            server.write(json.dumps(message).encode() + b"\n")
            error = server.answer(41)["error"]
            assert "more than 4,194,304 bytes" in error["message"]
        for line in (b"\xff\xfe\n", b"{\n", b'{"jsonrpc": "2.0", "id": {}}\n', b"[]\n", b"\n  \n{}\n"):
            server.write(line)
            assert server.answer(None)["error"]["code"] == -32700
        for arguments in ("read_graph", ["Ann"], 7):
            asked = server.request("tools/call", {"name": "read_graph", "arguments": arguments})
            assert server.answer(asked)["error"]["code"] == -32602
        long = {"query": "x" * 4_000_000}
        asked = server.request("tools/call", {"name": "search_nodes", "arguments": long})
        result = server.answer(asked)["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith("query has 4,000,000 characters")
        assert server.call("read_graph")["total"] == 0


def test_requests_before_the_end_of_input_are_answered_before_the_process_ends(tmp_path: Path) -> None:
    with StdioServer(tmp_path) as server:
        server.hello()
        asked = [
            server.request(
                "tools/call",
                {
                    "name": "create_entities",
                    "arguments": {"entities": [ENTITIES[0] | {"name": f"Ann {number}"}]},
                },
            )
            for number in range(10)
        ]
        server.end_input()
        assert server.wait() == 0
    answers = {message["id"]: message for message in map(json.loads, server.output[1:])}
    assert sorted(answers) == asked
    assert not any(answer["result"]["isError"] for answer in answers.values())


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_a_server_that_ends_gives_back_what_it_embeds_and_waits_for_nobody(
    tmp_path: Path, provider: EmbeddingServer, how: str
) -> None:
    with StdioServer(tmp_path, env=hosted(tmp_path, provider)) as server:
        server.hello()
        until(lambda: provider.requests, PATIENCE, "the provider was asked for its dimension")
        provider.always(Stall())
        server.call("create_entities", entities=ENTITIES)
        until(lambda: any("Ann" in text for text in provider.texts), PATIENCE, "the worker embeds")

        began = time.monotonic()
        server.end_input() if how == "end of input" else server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - began < 4 * 2.0  # two seconds, on a machine four times slower

    jobs = asyncio.run(_jobs(tmp_path))
    assert [(str(job.status), job.attempts, job.owner) for job in jobs] == [("pending", 0, None)] * len(
        ENTITIES
    )


@pytest.mark.parametrize("name", ["graph.db", "jobs.db"])
def test_a_server_that_waits_for_a_lock_ends_in_time_all_the_same(
    tmp_path: Path, provider: EmbeddingServer, name: str
) -> None:
    """Neither can it answer what it was asked, nor give back what it embeds, for longer than anybody waits for it."""
    with StdioServer(tmp_path, env=hosted(tmp_path, provider)) as server:
        server.hello()
        until(lambda: provider.requests, PATIENCE, "the provider was asked for its dimension")
        provider.always(Stall())
        server.call("create_entities", entities=ENTITIES)
        until(lambda: any("Ann" in text for text in provider.texts), PATIENCE, "the worker embeds")
        with closing(apsw.Connection(str(tmp_path / "unstuck-memory" / name))) as file:
            file.set_busy_timeout(int(PATIENCE * 1000))
            file.execute("BEGIN IMMEDIATE")
            server.request("tools/call", {"name": "delete_entities", "arguments": {"entityNames": ["Ann"]}})
            server.end_input()
            assert server.process.wait(4 * 2.0) == 0  # two seconds, on a machine four times slower


async def _jobs(folder: Path) -> list[Any]:
    async with Jobs.open(f"sqlite:///{folder / 'unstuck-memory' / 'jobs.db'}") as jobs:
        return (await jobs.find(Filter(), 1000)).jobs


def test_without_the_days_of_retention_only_the_worker_refuses(tmp_path: Path) -> None:
    folder = tmp_path / "unstuck-memory"
    folder.mkdir()
    (folder / "settings.toml").write_text("# nothing\n")
    with StdioServer(tmp_path) as server:
        server.hello()
        assert server.call("create_entities", entities=ENTITIES)["created"] == 3
        status = server.call("memory_status")
        assert (status["embedded"], status["worker_alive"]) == (0, False)
        assert any("EMBED_JOB_RETENTION_DAYS" in problem for problem in status["problems"])
        assert server.call("search_nodes", query="cello")["entities"][0]["name"] == "Ann"


def test_a_server_serves_the_project_that_it_was_started_with(tmp_path: Path) -> None:
    with StdioServer(tmp_path, "--project", "one", "--no-worker", "--tools", "core") as server:
        server.hello()
        tools = server.answer(server.request("tools/list"))["result"]["tools"]
        assert len(tools) == 11
        assert server.call("read_graph")["total"] == 0  # a new project is no mistake
        server.call("create_entities", entities=ENTITIES)
    with StdioServer(tmp_path, "--no-worker") as server:
        server.hello()
        assert server.call("read_graph")["total"] == 0
        assert server.call("open_nodes", names=["Ann"])["notFound"] == ["Ann"]
        assert server.call("search_nodes", query="cello")["entities"] == []
        assert server.call("delete_entities", entityNames=["Ann"])["deleted"] == 0


@pytest.mark.parametrize(
    ("arguments", "more", "line"),
    [
        (["--project", "x" * 101], {}, "project has 101 characters: 1 to 100"),
        ([], {"UNSTUCK_MEMORY_ANSWER": "5"}, "UNSTUCK_MEMORY_ANSWER is 5: it must be a whole number from 1000 to 200000"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], more: dict[str, str], line: str
) -> None:
    with StdioServer(tmp_path, *arguments, env=environment(tmp_path) | more) as server:
        assert server.wait() == 2
        errors = server.errors.read_text()
    assert line in errors
    assert errors.count("\n") == 1
    assert server.output == []
