"""Names that BullMQ's users give to jobs, queues and prefixes are served."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.node import Node
from support.redis import Redis
from support.work import burst

from unstuck import Filter, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


@pytest.mark.node("names")
@pytest.mark.parametrize("task", ["Send Email", "user/created"])
@pytest.mark.parametrize("queue", ["mail", "почта", "Zürich-2"])
async def test_names_as_node_has_them_are_served(
    harness: RedisHarness, redis7: Redis, task: str, queue: str
) -> None:
    prefix, said = f"{harness.prefix}:eu", [{"task": task, "data": {"to": "ann"}, "opts": {}}]
    [id_] = await asyncio.to_thread(Node(), "produce", str(redis7.port), prefix, queue, said)
    async with Unstuck(f"{redis7.url()}?prefix={prefix}") as app:

        @app.task(name=task, queue=queue)
        async def send(to: str) -> str:
            return f"sent to {to}"

        await burst(app)
        store = await app.store()
        [job] = (await store.find(Filter(queue=queue))).jobs
        assert await broken_rules(store) == []

    assert (job.id, job.task, job.status, job.result) == (id_, task, Status.COMPLETED, "sent to ann")
    seen = await asyncio.to_thread(Node(), "look", str(redis7.port), prefix, queue)
    assert seen["jobs"][id_]["returnvalue"] == "sent to ann"
