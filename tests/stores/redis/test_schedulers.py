"""BullMQ's job schedulers go on, whoever takes their jobs: a worker of Node's, one of ours, or both."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.bull import QUEUE, Bull
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work

from unstuck import Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Category, Failure, Job, Ref
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.outcome import failed, retried
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
LATER = 10**8  # milliseconds: not while a test runs
Side = Callable[[], AbstractAsyncContextManager[None]]
BROKEN = Failure(Category.TRANSIENT, "broken", "broken")


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


@asynccontextmanager
async def ours(harness: RedisHarness) -> AsyncIterator[None]:
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(n: int = 0) -> int:
            return n

        async with at_work(app):
            yield


@pytest.fixture(params=["node", "ours"])
def side(request: pytest.FixtureRequest, harness: RedisHarness, bull: Bull) -> Side:
    """A worker for the length of a block."""
    return (lambda: ours(harness)) if request.param == "ours" else lambda: bull.at_work(slow=0)


class Seen:
    """What lies on the server of a scheduler "beat"."""

    def __init__(self, harness: RedisHarness) -> None:
        self._client, self._prefix = harness.client, harness.prefix

    def key(self, name: str) -> str:
        return f"{self._prefix}:{QUEUE}:{name}"

    async def ids(self, name: str) -> list[str]:
        return [id_.decode() for id_ in await self._client.zrange(self.key(name), 0, -1)]

    async def until_completed(self, count: int) -> list[str]:
        async def there() -> bool:
            return len(await self.ids("completed")) >= count

        await until_async(there, 60, f"{count} jobs to complete")
        return await self.ids("completed")

    async def fields(self, key: str) -> dict[str, str]:
        found = await self._client.hgetall(self.key(key))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def slot(self) -> int:
        return int(await self._client.zscore(self.key("repeat"), "beat"))

    async def one_follows(self, *, behind: int) -> None:
        """There is one next job, and the scheduler knows it as its present one."""
        slot = await self.slot()
        assert slot > behind
        assert await self.ids("delayed") == [f"repeat:beat:{slot}"]
        assert (await self.fields("repeat:beat"))["ic"] == "2"


@pytest.fixture
def seen(harness: RedisHarness) -> Seen:
    return Seen(harness)


async def schedule(bull: Bull, repeat: dict[str, Any], **opts: Any) -> None:
    template = {"name": "send", "data": {"n": 1}, "opts": opts}
    await bull.control("upsertJobScheduler", "beat", repeat, template)


def slots(ids: list[str]) -> list[int]:
    assert all(id_.startswith("repeat:beat:") for id_ in ids)
    return sorted(int(id_.rsplit(":", 1)[1]) for id_ in ids)


@pytest.mark.node("job schedulers")
@pytest.mark.parametrize(
    ("repeat", "step", "offset"),
    [
        ({"every": 200, "limit": 4}, 200, None),
        ({"every": 400, "limit": 3, "offset": 150}, 400, 150),
        ({"pattern": "* * * * * *", "tz": "Asia/Tokyo", "limit": 3}, 1000, 0),
    ],
)
async def test_a_scheduler_goes_on_to_its_limit(
    seen: Seen, bull: Bull, side: Side, repeat: dict[str, Any], step: int, offset: int | None
) -> None:
    await schedule(bull, repeat, removeOnFail=True)
    async with side():
        ended = slots(await seen.until_completed(repeat["limit"]))
    assert len(ended) == repeat["limit"]
    assert len({slot % step for slot in ended}) == 1
    assert offset is None or ended[0] % step == offset
    assert await seen.ids("delayed") == []
    assert (await seen.fields("repeat:beat"))["ic"] == str(repeat["limit"])
    assert await seen.slot() == ended[-1]


@pytest.mark.node("job schedulers")
@pytest.mark.parametrize(
    "repeat",
    [{"every": LATER}, {"pattern": "0 15 3 * * 1-5", "tz": "America/New_York", "immediately": True}],
    ids=["every", "pattern"],
)
async def test_the_next_job_is_what_node_makes_it(
    seen: Seen, bull: Bull, side: Side, repeat: dict[str, Any]
) -> None:
    await schedule(bull, repeat, priority=7, attempts=3)
    async with side():
        [first] = await seen.until_completed(1)
    await seen.one_follows(behind=slots([first])[0])
    slot = await seen.slot()
    fields = await seen.fields(f"repeat:beat:{slot}")
    opts = json.loads(fields.pop("opts"))
    timestamp = int(fields.pop("timestamp"))
    delay = slot - timestamp
    assert fields == {"name": "send", "data": '{"n":1}', "delay": str(delay), "priority": "7", "rjk": "beat"}
    assert abs(opts.pop("timestamp") - timestamp) < 60_000  # by the clocks of two processes
    plan = {name: value for name, value in repeat.items() if name != "immediately"}
    again = {"prevMillis": slot} if "pattern" in repeat else {}
    assert opts == again | {
        "attempts": 3, "priority": 7, "delay": delay, "repeatJobKey": "beat", "jobId": f"repeat:beat:{slot}",
        "repeat": plan | {"count": 2},
    }  # fmt: skip
    told = [kind for kind, id_ in (await bull.look())["events"] if id_ == f"repeat:beat:{slot}"]
    assert told == ["added", "delayed"]


@pytest.mark.node("job schedulers")
async def test_a_scheduler_has_no_slot_behind_its_end(seen: Seen, bull: Bull, side: Side) -> None:
    end = int(time.time() * 1000) + 3_600_000
    await schedule(bull, {"pattern": "0 0 29 2 *", "tz": "UTC", "immediately": True, "endDate": end})
    async with side():
        await seen.until_completed(1)
    assert await seen.ids("delayed") == []
    assert (await seen.fields("repeat:beat"))["ic"] == "1"


@pytest.mark.node("job schedulers")
async def test_both_sides_together_add_each_iteration_once(
    seen: Seen, bull: Bull, harness: RedisHarness
) -> None:
    await schedule(bull, {"every": 50, "limit": 20})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bull.at_work(slow=0))
        await stack.enter_async_context(ours(harness))
        ended = slots(await seen.until_completed(20))
        assert await seen.ids("delayed") == []
    assert len(ended) == len(set(ended)) == 20
    assert (await seen.fields("repeat:beat"))["ic"] == "20"


REPEATS = [{"every": LATER}, {"pattern": "0 0 1 1 *", "tz": "UTC", "immediately": True}]


@pytest.mark.node("job schedulers")
@pytest.mark.parametrize("repeat", REPEATS, ids=["every", "pattern"])
async def test_a_job_that_is_taken_again_is_followed_by_one(
    seen: Seen, bull: Bull, harness: RedisHarness, repeat: dict[str, Any]
) -> None:
    await schedule(bull, repeat, attempts=5)
    store, shares = harness.store, {QUEUE: Share(60.0, 10)}
    first = await seen.slot()
    [job] = await store.lease(shares, 10, "one")
    await seen.one_follows(behind=first)
    await store.settle([retried(job.lease, BROKEN, 0.0)])
    [job] = await store.lease(shares, 10, "two")
    assert job.id == f"repeat:beat:{first}"
    [job] = (await store.reclaim(Recovery("three", 60.0, 10, queues=[QUEUE], of=["two"]))).jobs
    await store.settle([failed(job.lease, BROKEN)])
    await seen.one_follows(behind=first)
    assert await broken_rules(store) == []


@pytest.mark.node("job schedulers")
@pytest.mark.parametrize("repeat", REPEATS, ids=["every", "pattern"])
async def test_a_scheduler_outlives_a_worker_of_nodes_that_died_before_it_went_on(
    seen: Seen, bull: Bull, harness: RedisHarness, repeat: dict[str, Any]
) -> None:
    await schedule(bull, repeat)
    first = await seen.slot()
    assert await harness.client.lmove(seen.key("wait"), seen.key("active"), "RIGHT", "LEFT")
    await harness.client.hset(seen.key(f"repeat:beat:{first}"), "processedOn", 1)

    async def reclaimed() -> list[Job]:
        return (await harness.store.reclaim(Recovery("reaper", 60.0, 10, queues=[QUEUE], grace=0.001))).jobs

    [job] = await until_async(reclaimed, 30, "the lost job to be taken over")
    await harness.store.settle([failed(job.lease, BROKEN)])
    await seen.one_follows(behind=first)


@pytest.mark.node("job schedulers")
@pytest.mark.parametrize("repeat", REPEATS, ids=["every", "pattern"])
async def test_a_scheduler_outlives_a_job_of_it_that_is_cancelled(
    seen: Seen, bull: Bull, harness: RedisHarness, repeat: dict[str, Any]
) -> None:
    await schedule(bull, repeat)
    first = await seen.slot()
    assert await harness.store.cancel([Ref(QUEUE, f"repeat:beat:{first}")]) == 1
    await seen.one_follows(behind=first)


@pytest.mark.node("job schedulers")
async def test_a_pattern_that_we_cannot_read_is_named_and_its_job_runs(
    seen: Seen, bull: Bull, harness: RedisHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await schedule(bull, {"pattern": "H 0 1 1 *", "immediately": True})
    async with ours(harness):
        [first] = await seen.until_completed(1)
    assert await seen.ids("delayed") == []
    assert f"the scheduler of job {first} ends here" in caplog.text
    assert "'H 0 1 1 *' is not understood" in caplog.text
