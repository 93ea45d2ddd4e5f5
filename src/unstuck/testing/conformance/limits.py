"""take, give_back and close: at most so many tokens in any window, shared by all clients of the store.

And what workers learn from it of a queue that has no rate.
"""

from __future__ import annotations

import asyncio

import pytest

from unstuck.config.policy import Policy
from unstuck.protocol.limits import Grant
from unstuck.testing.harnesses.harness import Harness
from unstuck.worker.rate_limits import RateLimits


async def test_no_more_than_the_capacity_is_granted(harness: Harness) -> None:
    first = await harness.store.take("b", 3, 5, 60.0)
    second = await (await harness.another()).take("b", 3, 5, 60.0)
    third = await harness.store.take("b", 1, 5, 60.0)

    assert (first.granted, second.granted, third.granted) == (3, 2, 0)
    assert (first.closed_for, second.closed_for) == (0.0, 0.0)
    assert third.wait == pytest.approx(60.0, abs=10.0)


async def test_each_token_returns_one_interval_after_it_was_taken(harness: Harness) -> None:
    await harness.store.take("b", 3, 5, 60.0)
    await harness.age(40)
    await harness.store.take("b", 2, 5, 60.0)
    await harness.age(21)  # the first three are back, the last two are not

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 3
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(39.0, abs=10.0)


async def test_tokens_do_not_wait_out_a_clock_that_was_put_back(harness: Harness) -> None:
    await harness.store.take("b", 5, 5, 60.0)
    await harness.age(-7200)

    grant = await harness.store.take("b", 5, 5, 60.0)
    assert grant.granted == 0, "or the rate would be exceeded"
    assert grant.wait == pytest.approx(60.0, abs=10.0)
    await harness.age(61)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 5


async def test_tokens_of_a_slow_worker_stay_out_for_their_whole_interval(harness: Harness) -> None:
    await harness.store.take("b", 5, 5, 119.0)
    await harness.store.take("b", 1, 5, 60.0)  # by one that was never late
    await harness.age(100)

    assert (await harness.store.take("b", 1, 5, 60.0)).granted == 0


async def test_unused_tokens_can_be_given_back(harness: Harness) -> None:
    grant = await harness.store.take("b", 5, 5, 60.0)

    await harness.store.give_back("b", 2, grant.stamp)

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2


async def test_buckets_do_not_mix(harness: Harness) -> None:
    await harness.store.take("a", 5, 5, 60.0)

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 5


async def test_asking_for_nothing_gets_nothing(harness: Harness) -> None:
    assert await harness.store.take("b", 0, 5, 60.0) == Grant()
    await harness.store.give_back("b", 0, 0)
    assert (await harness.store.take("b", 9, 5, 60.0)).granted == 5


async def test_many_takers_at_once_share_exactly_the_capacity(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(4)]

    grants = await asyncio.gather(*(store.take("b", 3, 20, 60.0) for store in stores * 5))

    assert sum(grant.granted for grant in grants) == 20


async def test_what_is_given_back_does_not_bring_others_tokens_back_sooner(harness: Harness) -> None:
    """Worker A gives its token back unused; B used its own, which returns later."""
    unused = await harness.store.take("b", 1, 2, 30.0)
    await harness.store.take("b", 1, 2, 60.0)

    await harness.store.give_back("b", 1, unused.stamp)
    await harness.age(45)  # A's would be back by now, B's is not

    assert (await harness.store.take("b", 2, 2, 60.0)).granted == 1


async def test_what_is_given_back_is_the_callers_own(harness: Harness) -> None:
    """Worker A used its token; B, who came later, gives its own back. A's returns when it would have, not later."""
    await harness.store.take("b", 1, 2, 60.0)
    await harness.age(40)
    unused = await harness.store.take("b", 1, 2, 60.0)

    await harness.store.give_back("b", 1, unused.stamp)
    await harness.age(21)

    assert (await harness.store.take("b", 2, 2, 60.0)).granted == 2


async def test_no_more_is_given_back_than_was_taken(harness: Harness) -> None:
    grant = await harness.store.take("b", 2, 5, 60.0)

    await harness.store.give_back("b", 100, grant.stamp)
    await harness.store.give_back("never taken from", 100, grant.stamp)

    assert (await harness.store.take("b", 9, 5, 60.0)).granted == 5
    assert (await harness.store.take("never taken from", 9, 5, 60.0)).granted == 5


async def test_a_closed_bucket_grants_nothing_and_returns_for_how_long(harness: Harness) -> None:
    await harness.store.give_back("b", close_for=100.0)

    grant = await (await harness.another()).take("b", 3, 5, 60.0)

    assert grant.granted == 0
    assert grant.wait == pytest.approx(100.0, abs=10.0)
    assert (await harness.store.take("other", 3, 5, 60.0)).granted == 3


async def test_a_closed_bucket_opens_by_itself(harness: Harness) -> None:
    await harness.store.give_back("b", close_for=100.0)
    await harness.age(101)

    grant = await harness.store.take("b", 5, 5, 60.0)
    assert (grant.granted, grant.closed_for) == (5, 0.0)


async def test_the_longer_closure_stays(harness: Harness) -> None:
    await harness.store.give_back("b", close_for=100.0)
    await (await harness.another()).give_back("b", close_for=5.0)
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(100.0, abs=10.0)

    await harness.store.give_back("b", close_for=200.0)
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(200.0, abs=10.0)


async def test_closing_for_no_time_closes_nothing(harness: Harness) -> None:
    await harness.store.give_back("b", close_for=0.0)

    assert (await harness.store.take("b", 1, 5, 60.0)).granted == 1


async def test_tokens_that_are_out_when_a_bucket_is_closed_stay_out(harness: Harness) -> None:
    await harness.store.take("b", 3, 5, 60.0)
    await harness.store.give_back("b", close_for=30.0)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 0

    await harness.age(31)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2

    await harness.age(30)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 3


async def test_tokens_can_be_given_back_to_a_closed_bucket(harness: Harness) -> None:
    grant = await harness.store.take("b", 5, 5, 60.0)
    await harness.store.give_back("b", close_for=30.0)
    await harness.store.give_back("b", 2, grant.stamp)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 0

    await harness.age(31)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2


async def test_a_queue_without_a_rate_that_one_worker_was_asked_to_leave_alone_is_left_alone_by_all(
    harness: Harness,
) -> None:
    queues = {"q": Policy(), "other": Policy()}
    refused = RateLimits(harness.store, queues)
    refused.close("q", 60.0)
    await refused.finish(10.0)
    others = [RateLimits(await harness.another(), queues) for _ in range(2)]

    for limits in others:
        await limits.ask()
        assert (limits.closed("q"), limits.closed("other")) == (True, False)
        assert limits.next_open() == pytest.approx(60.0, abs=10.0)
    await harness.age(61)
    later = RateLimits(harness.store, queues)
    await later.ask()
    assert not later.closed("q")
