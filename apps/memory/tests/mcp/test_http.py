"""The server over HTTP: who may ask it, and what it answers."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import Client
from support.waiting import until
from support_memory.stdio_server import StdioServer
from support_memory.tool_calls import ENTITIES, GOOD, failed, good
from unstuck_memory.errors import GraphUnavailable, SettingsError
from unstuck_memory.mcp.http import Access, access, asgi, listening
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.tools import tools

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef"
HEADERS = {"Accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
PATIENCE = 60.0


@asynccontextmanager
async def serving(served: Served, who: Access) -> AsyncIterator[str]:
    """The application on a free port, for the length of a block."""
    with listening(who) as found:
        config = uvicorn.Config(asgi(served, tools(), who), log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server._serve([found]))
        try:
            yield f"http://127.0.0.1:{found.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@pytest.fixture
async def url(served: Served) -> AsyncIterator[str]:
    async with serving(served, access("127.0.0.1:0", {})) as url:
        yield url


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_calls_tools_over_http(url: str, mode: str) -> None:
    async with Client(f"{url}/mcp", mode=mode) as client:
        assert client.instructions is not None
        assert len((await client.list_tools()).tools) == 22
        await good(client, "create_entities", entities=ENTITIES)
        assert (await good(client, "read_graph"))["total"] == 3
        assert "is not an argument" in await failed(client, "read_graph", x=1)
        answers = await asyncio.gather(*(good(client, "search_nodes", query="cello") for _ in range(10)))
        assert all(answer["entities"][0]["name"] == "Ann" for answer in answers)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_of_the_older_protocols_is_served_as_it_was_asked_for(url: str, version: str) -> None:
    async with httpx.AsyncClient() as web:

        async def asked(method: str, **params: Any) -> dict[str, Any]:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await web.post(
                f"{url}/mcp", json=message, headers=HEADERS | {"MCP-Protocol-Version": version}
            )
            assert answer.status_code == 200
            result: dict[str, Any] = answer.json()["result"]
            return result

        client = {"name": "test", "version": "1"}
        hello = await asked("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        assert (hello["protocolVersion"], "Recall" in hello["instructions"]) == (version, True)
        assert len((await asked("tools/list"))["tools"]) == 22
        stored = await asked("tools/call", name="create_entities", arguments={"entities": ENTITIES})
        assert (stored["isError"], stored["structuredContent"]["created"]) == (False, 3)
        assert (await asked("tools/call", name="open_nodes", arguments={}))["isError"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": "127.0.0.1@evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[broken"}, 403),
    ],
)
async def test_a_page_of_another_origin_and_another_host_name_are_refused(
    url: str, headers: dict[str, str], status: int
) -> None:
    async with httpx.AsyncClient() as web:
        answer = await web.post(f"{url}/mcp", json=PING, headers=HEADERS | headers)
    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/"])
async def test_a_browser_that_asks_first_is_refused_too(url: str, path: str) -> None:
    asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    async with httpx.AsyncClient() as web:
        answer = await web.options(f"{url}{path}", headers=asks)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_long_body_and_other_methods_and_paths_are_refused(url: str) -> None:
    async with httpx.AsyncClient() as web:
        long = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * 4_200_000}}
        assert (await web.post(f"{url}/mcp", json=long, headers=HEADERS)).status_code == 413
        assert (await web.get(f"{url}/mcp", headers=HEADERS)).status_code == 405
        assert (await web.get(f"{url}/.well-known/oauth-protected-resource")).status_code == 404
        assert (
            await web.post(f"{url}/mcp", content=b"{", headers=HEADERS | {"Content-Type": "application/json"})
        ).status_code == 400
        assert (await web.post(f"{url}/mcp", json=PING, headers=HEADERS)).status_code == 200


async def test_healthz_shows_whether_the_graph_answers(
    url: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> int:
        raise GraphUnavailable("gone")

    async with httpx.AsyncClient() as web:
        answer = await web.get(f"{url}/healthz", headers={"Host": "10.0.0.7"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        monkeypatch.setattr(served.graph, "now", away)
        assert (await web.get(f"{url}/healthz")).status_code == 503


async def test_with_a_token_nobody_gets_in_without_it_and_no_authorization_server_is_named(
    served: Served,
) -> None:
    who = access(
        "0.0.0.0:0", {"UNSTUCK_MEMORY_TOKEN": TOKEN, "UNSTUCK_MEMORY_HOSTS": "memory.example.org, Other"}
    )
    async with serving(served, who) as url, httpx.AsyncClient() as web:
        known = HEADERS | {"Host": "memory.example.org"}
        for given in (
            None,
            "",
            f"Basic {TOKEN}",
            "Bearer",
            "Bearer wrong",
            f"Bearer {TOKEN}x",
            TOKEN,
            "Bearer é",
        ):
            headers = known if given is None else known | {"Authorization": given.encode()}
            answer = await web.post(f"{url}/mcp", json=PING, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401, given
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert (await web.post(f"{url}/mcp", json=PING, headers=known | right)).status_code == 200
        assert (
            await web.post(f"{url}/mcp", json=PING, headers=known | right | {"Host": "OTHER:80"})
        ).status_code == 200
        assert (await web.post(f"{url}/mcp", json=PING, headers=HEADERS | right)).status_code == 421
        assert (await web.get(f"{url}/healthz")).status_code == 200


def test_an_address_that_others_can_reach_needs_a_token_and_names() -> None:
    both = {"UNSTUCK_MEMORY_TOKEN": TOKEN, "UNSTUCK_MEMORY_HOSTS": "a"}
    assert access("0.0.0.0:80", both).names == {"a"}
    assert access("[::1]:80", {}) == Access("::1", 80)
    assert access("localhost:80", both).token == TOKEN
    for address in ("0.0.0.0:80", "[::]:80", "192.168.1.5:80", "memory.example.org:80"):
        for name, value in both.items():
            with pytest.raises(SettingsError, match="needs UNSTUCK_MEMORY_TOKEN, and UNSTUCK_MEMORY_HOSTS"):
                access(address, {name: value})
    for address in (
        "80",
        ":80",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "",
    ):
        with pytest.raises(SettingsError, match="it must be HOST:PORT"):
            access(address, {})
    for token in ("short", "0123456789 abcdef", "0123456789abcdeé"):
        with pytest.raises(SettingsError, match="at least 16 printable ASCII characters") as caught:
            access("127.0.0.1:80", {"UNSTUCK_MEMORY_TOKEN": token})
        assert token not in str(caught.value)


def test_an_address_in_use_is_one_line() -> None:
    with (
        listening(Access("127.0.0.1", 0)) as taken,
        pytest.raises(SettingsError, match="cannot listen at 127"),
    ):
        listening(Access("127.0.0.1", taken.getsockname()[1]))


async def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    with StdioServer(tmp_path, "--http", "127.0.0.1:0") as server:
        line = re.compile(r"listening at (http://127\.0\.0\.1:\d+/mcp)")
        found = until(lambda: line.search(server.errors.read_text()), PATIENCE, "the server listens")
        async with Client(found[1]) as client:
            await good(client, "create_entities", **GOOD["create_entities"])
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait) == 0
        assert server.errors.read_text().count("\n") == 1
    assert server.output == []
