"""take, give_back and close: at most so many tokens in any window, shared by all clients of the store."""

from __future__ import annotations

import asyncio
import time

import pytest

from unstuck.testing.harness import Harness
from unstuck.tokens import Grant


async def test_no_more_than_the_capacity_is_granted(harness: Harness) -> None:
    first = await harness.store.take("b", 3, 5, 60.0)
    second = await (await harness.another()).take("b", 3, 5, 60.0)
    third = await harness.store.take("b", 1, 5, 60.0)

    assert (first.granted, second.granted, third.granted) == (3, 2, 0)
    assert first.wait == 0.0
    assert third.wait == pytest.approx(60.0, abs=10.0)


async def test_each_token_returns_one_interval_after_it_was_taken(harness: Harness) -> None:
    await harness.store.take("b", 3, 5, 60.0)
    await harness.age(40)
    await harness.store.take("b", 2, 5, 60.0)
    await harness.age(21)  # the first three are back, the last two are not

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 3
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(39.0, abs=10.0)


async def test_unused_tokens_can_be_given_back(harness: Harness) -> None:
    grant = await harness.store.take("b", 5, 5, 60.0)

    await harness.store.give_back("b", 2, grant.stamp)

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2


async def test_buckets_do_not_mix(harness: Harness) -> None:
    await harness.store.take("a", 5, 5, 60.0)

    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 5


async def test_asking_for_nothing_gets_nothing(harness: Harness) -> None:
    assert await harness.store.take("b", 0, 5, 60.0) == Grant(0, 0.0)
    await harness.store.give_back("b", 0, 0)
    assert (await harness.store.take("b", 9, 5, 60.0)).granted == 5


async def test_many_takers_at_once_share_exactly_the_capacity(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(4)]

    grants = await asyncio.gather(*(store.take("b", 3, 20, 60.0) for store in stores * 5))

    assert sum(grant.granted for grant in grants) == 20


async def test_what_is_given_back_does_not_bring_others_tokens_back_sooner(harness: Harness) -> None:
    """Worker A gives its token back unused; B used its own, which was taken later."""
    for bucket in ("b", "c", "d", "e", "f"):
        unused = await harness.store.take(bucket, 1, 2, 60.0)
        await asyncio.sleep(1.0)
        began = time.monotonic()
        await harness.store.take(bucket, 1, 2, 60.0)

        await harness.store.give_back(bucket, 1, unused.stamp)
        await harness.age(60 - 0.9)  # A's would be back by now, B's is not
        granted = (await harness.store.take(bucket, 2, 2, 60.0)).granted

        if time.monotonic() - began < 0.9:  # else B's may be back, too, which tells nothing
            assert granted == 1
            return
    raise AssertionError("four calls took 0.9 s, five times")


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


async def test_a_closed_bucket_grants_nothing_and_tells_for_how_long(harness: Harness) -> None:
    await harness.store.close("b", 100.0)

    grant = await (await harness.another()).take("b", 3, 5, 60.0)

    assert grant.granted == 0
    assert grant.wait == pytest.approx(100.0, abs=10.0)
    assert (await harness.store.take("other", 3, 5, 60.0)).granted == 3


async def test_a_closed_bucket_opens_by_itself(harness: Harness) -> None:
    await harness.store.close("b", 100.0)
    await harness.age(101)

    grant = await harness.store.take("b", 5, 5, 60.0)
    assert (grant.granted, grant.wait) == (5, 0.0)


async def test_the_longer_closure_stays(harness: Harness) -> None:
    await harness.store.close("b", 100.0)
    await (await harness.another()).close("b", 5.0)
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(100.0, abs=10.0)

    await harness.store.close("b", 200.0)
    assert (await harness.store.take("b", 1, 5, 60.0)).wait == pytest.approx(200.0, abs=10.0)


async def test_closing_for_no_time_closes_nothing(harness: Harness) -> None:
    await harness.store.close("b", 0.0)

    assert (await harness.store.take("b", 1, 5, 60.0)).granted == 1


async def test_tokens_that_are_out_when_a_bucket_is_closed_stay_out(harness: Harness) -> None:
    await harness.store.take("b", 3, 5, 60.0)
    await harness.store.close("b", 30.0)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 0

    await harness.age(31)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2

    await harness.age(30)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 3


async def test_tokens_can_be_given_back_to_a_closed_bucket(harness: Harness) -> None:
    grant = await harness.store.take("b", 5, 5, 60.0)
    await harness.store.close("b", 30.0)
    await harness.store.give_back("b", 2, grant.stamp)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 0

    await harness.age(31)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 2
