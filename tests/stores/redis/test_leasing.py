"""A large lease on Redis is several short steps: what they take together, and what becomes of it when one fails."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from support.redis import Redis

from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.job import Job, Status
from unstuck.protocol.leases import ANSWER, Share
from unstuck.stores.redis.leasing import AT_ONCE, in_parts
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import leased, new

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Line:
    """Jobs that wait, and which of the steps that come for them fail."""

    def __init__(self, *, failing: tuple[int, ...] = ()) -> None:
        self.asked: list[tuple[int, int]] = []
        self.left = 10_000
        self.bytes = 0
        self._failing = failing

    async def lease(
        self, queues: Mapping[str, Share], limit: int, owner: str, most: int = ANSWER
    ) -> list[Job]:
        self.bytes += most
        self.asked.append((limit, queues["mail"].limit))
        if len(self.asked) in self._failing:
            raise StoreUnavailable("the server is away")
        first, self.left = 10_000 - self.left, self.left - limit
        moment = NOON + timedelta(milliseconds=len(self.asked))
        return [_job(number, owner, moment) for number in range(first, first + limit)]


def _job(number: int, owner: str, started_at: datetime) -> Job:
    return Job(
        queue="mail",
        id=str(number),
        task="send",
        status=Status.PROCESSING,
        payload=None,
        priority=0,
        created_at=NOON,
        run_at=NOON,
        started_at=started_at,
        attempts=1,
        fence=1,
        owner=owner,
    )


async def test_steps_take_no_more_than_the_queue_may_have() -> None:
    line = Line()

    jobs = await in_parts(line.lease, {"mail": Share(30.0, 2 * AT_ONCE + 50)}, 5 * AT_ONCE, "ann")

    assert [int(job.id) for job in jobs] == list(range(2 * AT_ONCE + 50))
    assert line.bytes <= ANSWER, "together they take as much as one answer may"
    assert line.asked == [(AT_ONCE, AT_ONCE), (AT_ONCE, AT_ONCE), (50, 50)]


async def test_what_other_steps_took_is_kept_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    jobs = await in_parts(Line(failing=(2,)).lease, {"mail": Share(30.0, 1000)}, 3 * AT_ONCE, "ann")

    assert len(jobs) == 2 * AT_ONCE
    assert "the server is away" in caplog.text


async def test_it_fails_when_every_step_does() -> None:
    with pytest.raises(StoreUnavailable, match="the server is away"):
        await in_parts(Line(failing=(1, 2)).lease, {"mail": Share(30.0, 1000)}, 2 * AT_ONCE, "ann")


async def test_the_best_come_first_whichever_step_the_server_took_first() -> None:
    line, share = Line(), {"mail": Share(30.0, AT_ONCE)}
    first = await line.lease(share, AT_ONCE, "ann")
    second = await line.lease(share, AT_ONCE, "ann")
    answers = iter([second, first])

    async def swapped(queues: Mapping[str, Share], limit: int, owner: str, most: int) -> list[Job]:
        return next(answers)

    assert await in_parts(swapped, {"mail": Share(30.0, 1000)}, 2 * AT_ONCE, "ann") == [*first, *second]


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness


async def test_a_large_lease_of_several_priorities_has_them_in_their_order(harness: RedisHarness) -> None:
    jobs = [new(priority=number % 10) for number in range(3 * AT_ONCE)]
    await harness.store.enqueue(jobs)

    taken = await leased(harness.store, 3 * AT_ONCE)

    assert [job.id for job in taken] == [job.id for job in sorted(jobs, key=lambda job: -job.priority)]
    assert len({job.started_at for job in taken}) > 1, "it was one step: the test proves nothing"
