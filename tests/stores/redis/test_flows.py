"""BullMQ's flows and kept jobs, run by a worker of Node's and by one of ours: both leave the same behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from support.bull import QUEUE, Bull
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work

from unstuck import Filter, Status, Unstuck
from unstuck.operations.explain import explain
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
LATER = 10**8  # milliseconds: not while a test runs
Side = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


class Seen:
    """What lies on the server."""

    def __init__(self, harness: RedisHarness) -> None:
        self._client, self._prefix = harness.client, harness.prefix

    def key(self, name: str) -> str:
        return f"{self._prefix}:{QUEUE}:{name}"

    async def open_gate(self) -> None:
        await self._client.set(f"{self._prefix}:gate", 1)

    async def state(self, id_: str) -> str | None:
        for name in ("completed", "failed", "waiting-children", "delayed", "prioritized"):
            if await self._client.zscore(self.key(name), id_) is not None:
                return name
        for name in ("active", "wait"):
            if id_.encode() in await self._client.lrange(self.key(name), 0, -1):
                return name
        return None

    async def until(self, id_: str, state: str | None) -> None:
        async def there() -> bool:
            return await self.state(id_) == state

        await until_async(there, 30, f"job {id_} to be {state}")

    async def field(self, id_: str, name: str) -> str | None:
        value = await self._client.hget(self.key(id_), name)
        return None if value is None else value.decode()

    async def events(self, id_: str) -> list[tuple[str, str | None]]:
        """Those of a job since it left its children, each with the state it came from."""
        entries = [facts for _, facts in await self._client.xrange(self.key("events"))]
        mine = [facts for facts in entries if facts.get(b"jobId") == id_.encode()]
        told = [
            (facts[b"event"].decode(), facts[b"prev"].decode() if b"prev" in facts else None)
            for facts in mine
        ]
        return [event for event in told if event[0] not in ("added", "waiting-children")]

    async def children(self, id_: str) -> dict[str, list[str]]:
        """What the parent has on record, by their ids; only kinds of which there are any."""
        key = self.key(id_)
        found = {
            "dependencies": await self._client.smembers(f"{key}:dependencies"),
            "processed": await self._client.hkeys(f"{key}:processed"),
            "failed": await self._client.hkeys(f"{key}:failed"),
            "unsuccessful": await self._client.zrange(f"{key}:unsuccessful", 0, -1),
        }
        return {
            kind: sorted(name.decode().rsplit(":", 1)[1] for name in names)
            for kind, names in found.items()
            if names
        }


@pytest.fixture
def seen(harness: RedisHarness) -> Seen:
    return Seen(harness)


@pytest.fixture(params=["node", "ours"])
def side(request: pytest.FixtureRequest, harness: RedisHarness, bull: Bull) -> Side:
    """A worker for the length of a block."""

    @asynccontextmanager
    async def ours() -> AsyncIterator[None]:
        async with Unstuck(harness.url) as app:
            _tasks(app, harness)
            async with at_work(app):
                yield

    return ours if request.param == "ours" else lambda: bull.at_work(slow=0)


def _tasks(app: Unstuck, harness: RedisHarness) -> None:
    @app.task(queue=QUEUE)
    async def whole() -> str:
        return "whole"

    @app.task(queue=QUEUE)
    async def send() -> str:
        return "sent"

    @app.task(queue=QUEUE)
    async def hopeless() -> None:
        raise ConnectionError("hopeless does not work")

    @app.task(queue=QUEUE)
    async def gated(n: int = 0) -> int:
        while not await harness.client.exists(f"{harness.prefix}:gate"):
            await asyncio.sleep(0.01)
        return n


def _flow(*children: tuple[str, dict[str, Any]], **opts: Any) -> dict[str, Any]:
    """A parent "whole" with children by their names."""
    said = [{"name": name, "queueName": QUEUE, "data": {}, "opts": opts} for name, opts in children]
    return {"name": "whole", "queueName": QUEUE, "data": {}, "opts": opts, "children": said}


RUN = [("waiting", "waiting-children"), ("active", "waiting"), ("completed", "active")]
FAILED = [*RUN[:2], ("failed", "active"), ("retries-exhausted", None)]


@pytest.mark.node("flows")
@pytest.mark.parametrize(
    ("option", "state", "events", "left"),
    [
        (None, "completed", RUN, {"processed": ["send"]}),
        ("removeDependencyOnFailure", "completed", RUN, {"processed": ["send"]}),
        ("ignoreDependencyOnFailure", "completed", RUN, {"processed": ["send"], "failed": ["hopeless"]}),
        ("continueParentOnFailure", "completed", RUN, {"processed": ["send"], "failed": ["hopeless"]}),
        ("failParentOnFailure", "failed", FAILED, {"processed": ["send"], "unsuccessful": ["hopeless"]}),
    ],
)
async def test_a_parent_goes_on_when_its_last_child_failed_and_is_removed(
    seen: Seen,
    bull: Bull,
    side: Side,
    option: str | None,
    state: str,
    events: list[tuple[str, str | None]],
    left: dict[str, list[str]],
) -> None:
    # The other one is over before the child fails, or a parent that continues would run before it.
    opts = {"removeOnFail": True, "delay": LATER} | ({option: True} if option else {})
    ids = await bull.tree(_flow(("send", {}), ("hopeless", opts)))
    parent, child = ids["whole"], ids["hopeless"]

    async with side():
        await seen.until(ids["send"], "completed")
        await bull.promote(child)
        await seen.until(parent, state)

    assert await seen.state(child) is None
    assert await seen.events(parent) == events
    names = {id_: name for name, id_ in ids.items()}
    found = await seen.children(parent)
    assert {kind: [names[id_] for id_ in some] for kind, some in found.items()} == left
    assert await seen.field(parent, "atm") == "1"
    reason = f"child {seen.key(child)} failed" if state == "failed" else None
    assert await seen.field(parent, "failedReason") == reason


@pytest.mark.node("flows")
async def test_a_parent_that_is_delayed_fails_at_once_with_its_child(
    seen: Seen, bull: Bull, side: Side
) -> None:
    first = await bull.tree(_flow(("send", {}), delay=LATER))
    async with side():
        await seen.until(first["whole"], "delayed")
        link = {"id": first["whole"], "queue": seen.key("")[:-1]}
        [child] = await bull.add(("hopeless", {}, {"parent": link, "failParentOnFailure": True}))
        await seen.until(first["whole"], "failed")
    assert await seen.field(first["whole"], "failedReason") == f"child {seen.key(child)} failed"


@pytest.mark.node("flows")
async def test_a_job_that_runs_already_is_waited_for_by_the_flow_that_adopts_it(
    seen: Seen, bull: Bull, side: Side
) -> None:
    [child] = await bull.add(("gated", {}, {"jobId": "mine"}))
    async with side():
        await seen.until(child, "active")
        ids = await bull.tree(_flow(("gated", {"jobId": "mine"})))
        await seen.until(ids["whole"], "waiting-children")
        await seen.open_gate()
        await seen.until(ids["whole"], "completed")
    assert await seen.children(ids["whole"]) == {"processed": ["mine"]}


@pytest.mark.node("flows")
async def test_a_parent_whose_children_are_pending_is_not_completed(
    seen: Seen, bull: Bull, side: Side
) -> None:
    [parent] = await bull.add(("gated", {}, {}))
    async with side():
        await seen.until(parent, "active")
        link = {"id": parent, "queue": seen.key("")[:-1]}
        [child] = await bull.add(("send", {}, {"parent": link, "delay": LATER}))
        await seen.open_gate()
        await seen.until(parent, "failed")
    assert (
        await seen.field(parent, "failedReason") == f"Job {parent} has pending dependencies. moveToFinished"
    )
    assert (await seen.events(parent))[-3:] == [
        ("active", "waiting"), ("failed", "active"), ("retries-exhausted", None),
    ]  # fmt: skip
    assert await seen.children(parent) == {"dependencies": [child]}


@pytest.mark.node("flows")
async def test_a_parent_with_an_attempt_left_completes_once_its_children_have(
    seen: Seen, bull: Bull, side: Side
) -> None:
    [parent] = await bull.add(("gated", {}, {"attempts": 2, "backoff": LATER}))
    async with side():
        await seen.until(parent, "active")
        link = {"id": parent, "queue": seen.key("")[:-1]}
        [child] = await bull.add(("send", {}, {"parent": link, "delay": LATER}))
        await seen.open_gate()
        await seen.until(parent, "delayed")
        await bull.promote(child)
        await seen.until(child, "completed")
        await bull.promote(parent)
        await seen.until(parent, "completed")
    assert await seen.field(parent, "atm") == "2"


@pytest.mark.node("flows")
async def test_a_parent_that_runs_while_its_child_fails_is_not_completed(
    seen: Seen, bull: Bull, side: Side
) -> None:
    [parent] = await bull.add(("gated", {}, {"attempts": 5}))
    async with side():
        await seen.until(parent, "active")
        link = {"id": parent, "queue": seen.key("")[:-1]}
        [child] = await bull.add(("hopeless", {}, {"parent": link, "failParentOnFailure": True}))
        await seen.until(child, "failed")
        await seen.open_gate()
        await seen.until(parent, "failed")
    why = f"Cannot complete job {parent} because it has at least one failed child. moveToFinished"
    assert await seen.field(parent, "failedReason") == why
    assert await seen.field(parent, "atm") == "1"


@pytest.mark.node("deduplication")
async def test_the_last_job_that_was_kept_while_its_kind_ran_is_run_behind_it(
    seen: Seen, bull: Bull, side: Side, harness: RedisHarness
) -> None:
    alone = {"deduplication": {"id": "kind", "keepLastIfActive": True}}
    [first] = await bull.add(("gated", {"n": 1}, alone))
    async with side():
        await seen.until(first, "active")
        same = await bull.add(("gated", {"n": 2}, alone), ("gated", {"n": 3}, alone | {"priority": 5}))
        assert same == [first, first]
        await seen.open_gate()
        await seen.until(first, "completed")

        async def kept() -> list[bytes]:
            ended = await harness.client.zrange(seen.key("completed"), 0, -1)
            return [id_ for id_ in ended if id_.decode() != first]

        [last] = await until_async(kept, 30, "the kept job to end")
    assert await seen.field(last.decode(), "data") == '{"n":3}'
    assert await seen.field(last.decode(), "priority") == "5"
    assert await seen.field(last.decode(), "deid") == "kind"
    assert await seen.events(last.decode()) == [
        ("waiting", None),
        ("active", "waiting"),
        ("completed", "active"),
    ]
    assert not await harness.client.exists(seen.key("dn:kind"), seen.key("de:kind"))


@pytest.mark.node("flows")
async def test_a_parent_names_which_children_it_waits_for(
    seen: Seen, bull: Bull, harness: RedisHarness
) -> None:
    ids = await bull.tree(_flow(("send", {"delay": LATER}), ("hopeless", {})))

    async def told() -> str:
        [parent] = (await harness.store.find(Filter(queue=QUEUE, ids=(ids["whole"],)))).jobs
        assert parent.status is Status.PENDING
        return await explain(harness.store, parent)

    assert (await told()).startswith("It waits until 2 child jobs of it ended: ")
    async with Unstuck(harness.url) as app:
        _tasks(app, harness)
        async with at_work(app):
            await seen.until(ids["hopeless"], "failed")
            said = await told()
    assert f"{ids['send']} of queue 'mail'" in said
    assert f"unstuck retry {ids['hopeless']}" in said
    await harness.store.requeue(Filter(queue=QUEUE, ids=(ids["hopeless"],)))
    assert "unstuck retry" not in await told()
