"""Large payloads: whatever limit is asked for, one answer does not grow beyond what stores and drivers can carry."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from unstuck.protocol.job import Job, Ref
from unstuck.protocol.leases import ANSWER, Recovery, Share
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import QUEUE, enqueued, states
from unstuck.testing.harnesses.harness import Harness

EACH = 1_000_000  # bytes, about the most that a payload may have
COUNT = ANSWER // EACH + 4
WIDE = Share(60.0, 2 * COUNT)


async def given(harness: Harness) -> list[Ref]:
    """More jobs than one answer takes, in calls of a size that a producer would make, too."""
    refs: list[Ref] = []
    while len(refs) < COUNT:
        refs += await enqueued(harness.store, min(5, COUNT - len(refs)), payload="x" * EACH)
    return refs


def is_as_much_as_fits(jobs: Sequence[Job]) -> bool:
    sizes = [len(str(job.payload)) for job in jobs]
    return sum(sizes[:-1]) < ANSWER <= sum(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("share", [WIDE, WIDE._replace(per_lane=COUNT)], ids=["plain", "lanes"])
async def test_a_lease_takes_no_more_than_one_answer_can_carry(harness: Harness, share: Share) -> None:
    refs = await given(harness)

    first = await harness.store.lease({QUEUE: share}, share.limit, "ann")
    assert is_as_much_as_fits(first)
    assert await states(harness.store) == {"processing": len(first), "pending": COUNT - len(first)}
    rest = await harness.store.lease({QUEUE: share}, share.limit, "ann")
    assert [job.ref for job in [*first, *rest]] == refs


@pytest.mark.slow
async def test_a_job_larger_than_an_answer_is_handed_out_alone(harness: Harness) -> None:
    refs = await enqueued(harness.store, 1, payload="x" * ANSWER)
    refs += await enqueued(harness.store, 1)

    for ref in refs:
        [job] = await harness.store.lease({QUEUE: WIDE}, WIDE.limit, "ann")
        assert job.ref == ref
    await harness.age(120.0)
    for ref in refs:
        [job] = (await harness.store.reclaim(Recovery("reaper", 60.0, WIDE.limit, queues=[QUEUE]))).jobs
        assert job.ref == ref


@pytest.mark.slow
@pytest.mark.parametrize("of", [None, ["ann"]], ids=["lapsed", "dead"])
async def test_a_reaper_takes_over_no_more_than_one_answer_can_carry_and_goes_on(
    harness: Harness, of: list[str] | None
) -> None:
    refs = await given(harness)
    while await harness.store.lease({QUEUE: WIDE}, WIDE.limit, "ann"):
        pass
    await harness.age(120.0)

    taken = (await harness.store.reclaim(Recovery("reaper", 60.0, WIDE.limit, queues=[QUEUE], of=of))).jobs
    assert is_as_much_as_fits(taken)
    await harness.age(120.0)
    assert {outcome.lease.ref for outcome in await Reaper(harness.store).recover()} == set(refs)
