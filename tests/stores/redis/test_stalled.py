"""A worker of ours dies over a job that BullMQ enqueued: the job comes back as it would from a worker of BullMQ's."""

from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.work import burst

from unstuck import Filter, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Ending, Job, Ref
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import Outcome
from unstuck.protocol.retry import fate
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import look, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
LEASE = 60.0


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def start(harness: RedisHarness, budget: int | None = None) -> Job:
    share = Share(LEASE, 1, max_crashes=budget)
    [job] = await harness.store.lease({QUEUE: share}, 1, "w")
    return job


async def crash(harness: RedisHarness, budget: int | None = None) -> Outcome:
    """Run the next job on a worker that dies, and let a reaper find it."""
    await start(harness, budget)
    await harness.age(2 * LEASE)
    [outcome] = await Reaper(harness.store).recover()
    return outcome


def counted(job: Job) -> tuple[Status, int, int]:
    return job.status, job.attempts, job.crashes


@pytest.mark.node("stalled jobs")
async def test_a_job_of_nodes_runs_again_after_the_first_crash_and_fails_with_the_second(
    harness: RedisHarness, bull: Bull
) -> None:
    """``maxStalledCount`` is 1, and a stall costs no attempt, of which a job of Node's has one."""
    [id_] = await bull.add(("send", {}, {}))
    ref = Ref(QUEUE, id_)

    await crash(harness)
    assert counted(await look(harness.store, ref)) == (Status.PENDING, 1, 1)
    assert (await bull.look())["jobs"][id_]["attemptsMade"] == 0
    assert await harness.client.hget(harness.base(QUEUE) + id_, "stc") == b"1"

    await crash(harness)
    job = await look(harness.store, ref)
    assert counted(job) == (Status.FAILED, 2, 2)
    assert job.error is not None
    assert job.error.code == "timeout"
    seen = await bull.look()
    assert [kind for kind, of in seen["events"] if of == id_] == [
        "added", "waiting", "active", "waiting", "stalled", "active", "failed", "retries-exhausted",
    ]  # fmt: skip
    assert await broken_rules(harness.store) == []


async def test_a_crash_leaves_a_job_of_nodes_all_of_its_attempts(harness: RedisHarness, bull: Bull) -> None:
    [id_] = await bull.add(("send", {}, {"attempts": 2}))

    await crash(harness)
    for end in (Status.PENDING, Status.FAILED):
        job = await start(harness)
        await harness.store.settle([fate(job, trouble())])
        assert (await look(harness.store, job.ref)).status is end

    of = (await bull.look())["jobs"][id_]
    assert (of["state"], of["attemptsMade"]) == ("failed", 2)


async def test_what_stalled_at_node_before_counts_with_us(harness: RedisHarness, bull: Bull) -> None:
    [id_] = await bull.add(("send", {}, {}))
    await harness.client.hset(
        harness.base(QUEUE) + id_, "stc", "1"
    )  # as its own look for stalled jobs leaves it

    outcome = await crash(harness)

    assert outcome.ending is Ending.FAILED
    assert counted(await look(harness.store, Ref(QUEUE, id_))) == (Status.FAILED, 2, 2)


async def test_a_job_of_nodes_has_the_crash_budget_of_its_queue_if_that_has_one(
    harness: RedisHarness, bull: Bull
) -> None:
    [id_] = await bull.add(("send", {}, {}))

    words = [(await crash(harness, budget=3)).ending for _ in range(3)]

    assert words == [Ending.RETRIED, Ending.RETRIED, Ending.FAILED]
    assert counted(await look(harness.store, Ref(QUEUE, id_))) == (Status.FAILED, 3, 3)


async def test_the_budget_that_holds_is_the_one_by_which_the_job_was_last_taken(
    harness: RedisHarness, bull: Bull
) -> None:
    await bull.add(("send", {}, {}))

    words = [(await crash(harness, budget)).ending for budget in (3, None)]

    assert words == [Ending.RETRIED, Ending.FAILED]


async def test_a_worker_gives_jobs_of_nodes_the_budget_that_the_code_declares(
    harness: RedisHarness, bull: Bull
) -> None:
    [id_] = await bull.add(("send", {}, {}))
    seen: list[int | None] = []
    async with Unstuck(harness.url) as app:
        app.queue(QUEUE, max_crashes=5)

        @app.task(queue=QUEUE)
        async def send() -> None:
            seen.append((await look(harness.store, Ref(QUEUE, id_))).max_crashes)

        await burst(app)
    assert seen == [5]


async def test_a_job_of_ours_has_the_budget_that_it_was_enqueued_with(harness: RedisHarness) -> None:
    await harness.store.enqueue([ours("mine", max_attempts=1)])

    assert (await crash(harness, budget=3)).ending is Ending.FAILED


async def test_a_job_of_nodes_that_is_put_back_has_its_whole_budget_again(
    harness: RedisHarness, bull: Bull
) -> None:
    await bull.add(("send", {}, {}))
    for _ in range(2):
        await crash(harness)
    assert await harness.store.requeue(Filter(queue=QUEUE)) == 1

    assert (await crash(harness)).ending is Ending.RETRIED
