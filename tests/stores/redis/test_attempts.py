"""What is between and left of the attempts of a job that Node enqueued: the wait, and a stack trace of each."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs
from support.bull import QUEUE, Bull
from support.redis import Redis

from unstuck.protocol.job import Category, Failure, Job, Ref
from unstuck.protocol.leases import Share
from unstuck.protocol.retry import fate
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import look

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def start(harness: RedisHarness) -> Job:
    [job] = await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    return job


async def fail(harness: RedisHarness, name: str) -> None:
    """Let the next attempt fail with a stack trace of that name."""
    why = Failure(category=Category.TRANSIENT, code="no", message="no", stack=name)
    await harness.store.settle([fate(await start(harness), why)])


@pytest.mark.node("backoff")
@pytest.mark.parametrize(
    ("backoff", "attempt", "shortest", "longest"),
    [
        (1000, 1, 1.0, 1.0),
        ({"type": "fixed", "delay": 1000}, 1, 1.0, 1.0),
        ({"type": "fixed", "delay": 1000, "jitter": 0.5}, 3, 0.5, 1.0),
        ({"type": "exponential", "delay": 1000}, 3, 4.0, 4.0),
        ({"type": "exponential", "delay": 1000, "jitter": 0.25}, 3, 3.0, 4.0),
        ({"type": "exponential", "delay": 1000, "jitter": 1}, 2, 0.0, 2.0),
        ({"type": "exponential", "delay": 10}, 20, 5242.88, 5242.88),
    ],
)
async def test_a_backoff_has_the_jitter_that_node_asks_for(
    harness: RedisHarness, bull: Bull, backoff: Any, attempt: int, shortest: float, longest: float
) -> None:
    """BullMQ's jitter shortens a delay by up to that share of it; without one the delay is exact."""
    await bull.add(("send", {}, {"attempts": 30, "backoff": backoff}))
    job = await start(harness)
    why = Failure(category=Category.TRANSIENT, code="no", message="no")

    delays = [
        fate(structs.replace(job, attempts=attempt), why, jitter=chance).delay for chance in (0.0, 0.5, 1.0)
    ]

    assert delays == pytest.approx([longest, (shortest + longest) / 2, shortest])


@pytest.mark.node("stack traces")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ["first", "second", "third"]),
        ({"stackTraceLimit": 2}, ["second", "third"]),
        ({"stackTraceLimit": 0}, []),
    ],
)
async def test_every_attempt_leaves_a_stack_trace_up_to_the_limit(
    harness: RedisHarness, bull: Bull, options: dict[str, Any], kept: list[str]
) -> None:
    [id_] = await bull.add(("send", {}, {"attempts": 3, **options}))

    for name in ("first", "second", "third"):
        await fail(harness, name)

    assert (await bull.look())["jobs"][id_]["stacktrace"] == kept
    job = await look(harness.store, Ref(QUEUE, id_))
    assert job.error is not None
    assert job.error.stack == "third"


@pytest.mark.node("stack traces")
async def test_ours_go_behind_those_of_nodes_workers_and_the_other_way_round(
    harness: RedisHarness, bull: Bull
) -> None:
    [id_] = await bull.add(("hopeless", {}, {"attempts": 2}))
    await fail(harness, "ours\nof \x01 \u2713")

    await bull.work(1)

    ours, theirs = (await bull.look())["jobs"][id_]["stacktrace"]
    assert ours == "ours\nof \x01 \u2713"
    assert "work.mjs" in theirs


async def test_at_most_twenty_are_kept_of_a_job_that_has_no_limit(harness: RedisHarness, bull: Bull) -> None:
    [id_] = await bull.add(("send", {}, {"attempts": 30}))

    for n in range(23):
        await fail(harness, str(n))

    kept = (await bull.look())["jobs"][id_]["stacktrace"]
    assert kept == [str(n) for n in range(3, 23)]


@pytest.mark.parametrize("damage", [b"no JSON", b"{}", b"7", b"[1, null]"])
async def test_what_is_no_list_of_traces_holds_up_nobody(
    harness: RedisHarness, bull: Bull, damage: bytes
) -> None:
    [id_] = await bull.add(("send", {}, {}))
    await harness.client.hset(harness.base(QUEUE) + id_, "stacktrace", damage)

    await fail(harness, "ours")

    assert (await bull.look())["jobs"][id_]["stacktrace"][-1] == "ours"
