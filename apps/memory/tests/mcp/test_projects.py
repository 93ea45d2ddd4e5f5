"""One server serves one project: no argument of any tool reaches another one."""

import json
from collections.abc import AsyncIterator

import pytest
from mcp import Client
from support_memory.tool_calls import GOOD, text_of
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.server import memory_server
from unstuck_memory.mcp.tools import tools
from unstuck_memory.memory import Memory
from unstuck_memory.search import Search

from unstuck import Filter

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stranger(served: Served) -> AsyncIterator[Client]:
    """A client of another project of the same graph and queue, which is empty."""
    memory = Memory(served.graph, "other", served.jobs, may_be_empty=True)
    other = Served(served.graph, served.jobs, memory, Search(served.graph, served.jobs.provider, "other"))
    async with Client(memory_server(other, tools(debug=True))) as client:
        yield client


@pytest.mark.parametrize("name", GOOD)
async def test_no_tool_reads_or_writes_another_project(
    known: Client, served: Served, stranger: Client, name: str
) -> None:
    store = await served.jobs.app.jobs()
    before = [line async for line in served.memory.export()]
    jobs = {job.id: job.status for job in (await store.find(Filter(), 100)).jobs}
    assert any(b"cello" in line for line in before)

    result = await stranger.call_tool(name, GOOD[name])
    answer = text_of(result) + json.dumps(result.structured_content)
    assert not [word for word in ("plays", "anvils", "company", "0.5") if word in answer]
    data = result.structured_content or {}
    assert not data.get("entities")
    assert not data.get("relations")
    assert [line async for line in served.memory.export()] == before
    now = {job.id: job.status for job in (await store.find(Filter(), 100)).jobs}
    assert {id_: now.get(id_) for id_ in jobs} == jobs
