"""Rows of docs/node.md that have no larger test of their own: what is the same, what differs, what is not served."""

from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Filter, Status, Unstuck, current_job
from unstuck.protocol.job import Ref
from unstuck.protocol.leases import Share
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import look

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


@pytest.mark.node("lifo")
async def test_what_was_added_with_lifo_is_taken_first_and_the_last_of_it_before_all(
    harness: RedisHarness, bull: Bull
) -> None:
    first, second, third, fourth = await bull.add(
        ("send", {}, {}), ("send", {}, {}), ("send", {}, {"lifo": True}), ("send", {}, {"lifo": True})
    )

    jobs = await harness.store.lease({QUEUE: Share(60.0, 4)}, 4, "w")

    assert [job.id for job in jobs] == [fourth, third, first, second]


@pytest.mark.node("delay", "pause")
async def test_delayed_jobs_are_promoted_while_their_queue_is_paused(
    harness: RedisHarness, bull: Bull
) -> None:
    """BullMQ's workers do it before they look whether the queue is paused."""
    await bull.control("pause")
    [plain, urgent] = await bull.add(("send", {}, {"delay": 1}), ("send", {}, {"delay": 1, "priority": 2}))

    async def promoted() -> bool:
        assert await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w") == []
        return not await harness.client.zcard(harness.base(QUEUE) + "delayed")

    await until_async(promoted, 20, "the jobs to be promoted")
    seen = await bull.look()
    assert {id_: job["state"] for id_, job in seen["jobs"].items()} == {
        plain: "waiting",
        urgent: "prioritized",
    }
    assert [kind for kind, id_ in seen["events"] if id_ == plain] == ["added", "delayed", "waiting"]

    await bull.control("resume")
    assert {job.id for job in await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w")} == {plain, urgent}


@pytest.mark.node("progress", "logs")
async def test_progress_is_seen_by_node_and_log_lines_of_a_handler_are_not(
    harness: RedisHarness, bull: Bull, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    [id_] = await bull.add(("send", {}, {}))
    async with Unstuck(harness.url) as app:
        app.queue(QUEUE, heartbeat=0.05, lease=5)

        @app.task(queue=QUEUE)
        async def send() -> None:
            current_job().progress({"done": 40})
            current_job().log("half of it")

            async def kept() -> bool:
                return bool((await look(harness.store, Ref(QUEUE, id_))).progress == {"done": 40})

            await until_async(kept, 20, "the progress to be stored")

        await burst(app)
    await bull.log(id_, "a line of Node's")

    seen = await bull.look()
    assert seen["jobs"][id_]["progress"] == {"done": 40}
    assert ["progress", id_] in seen["events"]
    assert seen["jobs"][id_]["logs"] == ["a line of Node's"]
    assert "half of it" in caplog.text

    assert await harness.store.delete(Filter(queue=QUEUE)) == 1
    assert await harness.client.exists(f"{harness.base(QUEUE)}{id_}:logs") == 0


@pytest.mark.node("getWorkers")
async def test_node_lists_its_own_workers_and_we_list_ours(harness: RedisHarness, bull: Bull) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send() -> None: ...

        async with at_work(app):

            async def known() -> bool:
                return len((await harness.store.fleet()).workers) == 1

            await until_async(known, 20, "our worker to be listed")
            assert await bull.control("getWorkers") == []
            async with bull.at_work(slow=0):
                assert len(await bull.control("getWorkers")) == 1
                assert len((await harness.store.fleet()).workers) == 1


@pytest.mark.node("telemetry", "custom backoff")
async def test_a_job_with_options_that_are_not_served_runs_without_them(
    harness: RedisHarness, bull: Bull
) -> None:
    trace = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
    traced, custom = await bull.add(
        ("send", {}, {"telemetry": {"metadata": trace}}),
        ("flaky", {}, {"attempts": 2, "backoff": {"type": "mine", "delay": 1}}),
    )
    tries: list[str] = []
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send() -> None: ...

        @app.task(queue=QUEUE)
        async def flaky() -> None:
            tries.append(current_job().id)
            if len(tries) == 1:
                raise ConnectionError("not yet")

        async with at_work(app):

            async def over() -> bool:
                found = (await harness.store.find(Filter(queue=QUEUE, status=Status.COMPLETED))).jobs
                return len(found) == 2

            await until_async(over, 20, "both to end")

    assert (await look(harness.store, Ref(QUEUE, traced))).trace is None
    assert tries == [custom, custom]
    assert (await look(harness.store, Ref(QUEUE, custom))).backoff == (0.001,)
