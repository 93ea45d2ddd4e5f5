"""Several servers on one graph, as several assistants have them: they share the embeddings, and the death of one harms nobody."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from support_memory.embedding_server import EmbeddingServer, Stall
from support_memory.stdio_server import StdioServer, environment

from unstuck import Filter, Job, Jobs, Status

PATIENCE = 120.0
MANY = 1_400  # more than two workers can hold: ten calls of 64 jobs each


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
        EMBED_JOB_RECOVERY_INTERVAL="1000",
    )


async def stored(folder: Path, status: Status) -> tuple[list[Job], dict[str, int]]:
    """The jobs that are in a state, and the process of each worker."""
    found: list[Job] = []
    cursor = None
    async with Jobs.open(f"sqlite:///{folder / 'unstuck-memory' / 'jobs.db'}") as jobs:
        while True:
            page = await jobs.find(Filter(status=status), 1000, cursor)
            found += page.jobs
            if (cursor := page.cursor) is None:
                return found, {worker.id: worker.pid for worker in await jobs.workers()}


def held(folder: Path) -> dict[int, list[Job]]:
    """The jobs that run, by the processes that hold them."""
    found, processes = asyncio.run(stored(folder, Status.PROCESSING))
    by_process: dict[int, list[Job]] = {}
    for job in found:
        by_process.setdefault(processes.get(job.owner or "", 0), []).append(job)
    return by_process


def people(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"name": f"Ann {number:03}", "entityType": "person", "observations": [f"has the number {number}"]}
        for number in range(first, last)
    ]


def test_three_servers_share_one_graph_and_the_death_of_one_loses_and_robs_nothing(
    tmp_path: Path, provider: EmbeddingServer
) -> None:
    with ExitStack() as stack:
        servers = {
            server.pid: server
            for server in (
                stack.enter_context(StdioServer(tmp_path, env=hosted(tmp_path, provider))) for _ in range(3)
            )
        }
        for server in servers.values():
            server.hello()
        until(lambda: len(provider.requests) >= 3, PATIENCE, "each server knows the dimension")
        provider.always(Stall())
        for first, server in zip(range(0, MANY, MANY // 2), servers.values(), strict=False):
            server.call("create_entities", entities=people(first, first + MANY // 2))

        def all_hold() -> dict[int, list[Job]] | None:
            found = held(tmp_path)
            return found if len(found) == 3 else None

        before = until(all_hold, PATIENCE, "each server is in the middle of embedding")
        dead = next(iter(servers))
        siblings = {job.id: (job.owner, job.fence) for pid in before if pid != dead for job in before[pid]}
        servers[dead].process.kill()
        servers[dead].process.wait()

        def recovered() -> bool:
            return dead not in held(tmp_path)

        until(recovered, PATIENCE, "the jobs of the dead server are free, or others have them")
        now = {job.id: (job.owner, job.fence) for jobs in held(tmp_path).values() for job in jobs}
        assert {id_: now.get(id_) for id_ in siblings} == siblings  # which all still wait for the provider
        provider.release()

        alive = [server for pid, server in servers.items() if pid != dead]

        def embedded() -> bool:
            status = alive[0].call("memory_status")
            return bool(status["entities"] == status["embedded"] == MANY)

        until(embedded, PATIENCE, "all entities are embedded")
        until(lambda: not held(tmp_path), PATIENCE, "all jobs have ended")
        for server in alive:
            server.end_input()
            assert server.wait() == 0

    found, _ = asyncio.run(stored(tmp_path, Status.COMPLETED))
    assert len(found) == MANY
    crashed = {job.id for job in found if job.crashes}
    # It may have leased more before it was killed, but nothing that its siblings had.
    assert crashed >= {job.id for job in before[dead]}
    assert not crashed & siblings.keys()
    ended = {job.id: (job.attempts, job.fence) for job in found if job.id in siblings}
    assert ended == {id_: (1, fence) for id_, (_, fence) in siblings.items()}


@pytest.mark.accepts("T19")
def test_a_password_is_neither_printed_nor_answered_when_a_server_cannot_be_reached(tmp_path: Path) -> None:
    unreachable = environment(tmp_path, UNSTUCK_MEMORY_JOBS="postgresql://ann:s3cr3t-word@127.0.0.1:9/jobs")
    with StdioServer(tmp_path, env=unreachable) as server:
        server.hello()
        assert server.call("create_entities", entities=people(0, 2))["created"] == 2
        status = server.call("memory_status")
        assert any("the queue does not answer" in problem for problem in status["problems"])
        server.end_input()
        assert server.wait() == 0
        assert "s3cr3t" not in json.dumps([line.decode() for line in server.output])
        assert "s3cr3t" not in server.errors.read_text()

    pytest.importorskip("neo4j")
    unreachable = environment(tmp_path, NEO4J_URI="bolt://127.0.0.1:9", NEO4J_PASSWORD="s3cr3t-word")
    with StdioServer(tmp_path, env=unreachable) as server:
        assert server.wait() == 1
        errors = server.errors.read_text()
        assert "127.0.0.1:9" in errors
        assert "s3cr3t" not in errors
        assert server.output == []
