"""slot, slots and tick: a schedule moves on and its jobs are there, or neither."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from unstuck.errors import UnstuckError
from unstuck.model import Filter, Settled, completed
from unstuck.testing.conformance.given import leased, new, states
from unstuck.testing.harness import Harness

SLOT = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
LATER = SLOT + timedelta(milliseconds=1)


async def test_a_schedule_never_seen_has_no_slot(harness: Harness) -> None:
    assert await harness.store.slot("s") is None


async def test_a_tick_sets_the_slot_and_enqueues_for_all_to_see(harness: Harness) -> None:
    assert await harness.store.tick("s", SLOT, [new(), new("other")]) is True

    other = await harness.another()
    assert await other.slot("s") == SLOT
    assert await other.slot("another") is None
    assert (await states(other), await states(other, "other")) == ({"pending": 1}, {"pending": 1})


async def test_a_store_in_which_nothing_ever_fired_has_no_slots(harness: Harness) -> None:
    await harness.store.enqueue([new()])

    assert await harness.store.slots() == {}


async def test_every_schedule_is_told_with_the_last_slot_it_fired_for(harness: Harness) -> None:
    names = ["daily", "Zürich", "a b", "'; DROP"]
    for name in names:
        assert await harness.store.tick(name, SLOT, [])
    assert await harness.store.tick("daily", LATER, [new()]) is True
    assert await harness.store.tick("a b", SLOT - timedelta(days=1), [new()]) is False

    other = await harness.another()
    slots = await other.slots()
    assert slots == dict.fromkeys(names, SLOT) | {"daily": LATER}
    assert {slot.utcoffset() for slot in slots.values()} == {timedelta(0)}


async def test_a_schedule_is_told_also_when_its_jobs_are_long_gone(harness: Harness) -> None:
    await harness.store.tick("s", SLOT, [new()])
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.store.delete(Filter())

    assert await harness.store.slots() == {"s": SLOT}


async def test_a_tick_may_come_without_jobs(harness: Harness) -> None:
    assert await harness.store.tick("s", SLOT, []) is True
    assert await harness.store.slot("s") == SLOT


@pytest.mark.parametrize("early", [timedelta(0), timedelta(milliseconds=1), timedelta(days=999)])
async def test_a_slot_that_is_not_later_does_nothing(harness: Harness, early: timedelta) -> None:
    await harness.store.tick("s", SLOT, [])

    assert await harness.store.tick("s", SLOT - early, [new()]) is False

    assert await harness.store.slot("s") == SLOT
    assert await states(harness.store) == {}


async def test_the_next_slot_is_let_pass(harness: Harness) -> None:
    await harness.store.tick("s", SLOT, [new()])

    assert await harness.store.tick("s", LATER, [new()]) is True
    assert await harness.store.slot("s") == LATER
    assert await states(harness.store) == {"pending": 2}


async def test_the_time_zone_of_a_slot_does_not_matter(harness: Harness) -> None:
    await harness.store.tick("s", SLOT.astimezone(timezone(timedelta(hours=14))), [])

    assert await harness.store.slot("s") == SLOT
    assert await harness.store.tick("s", SLOT, []) is False


async def test_a_repeated_tick_does_nothing_even_if_its_job_is_gone(harness: Harness) -> None:
    jobs = [new(key="schedule:s:1")]
    await harness.store.tick("s", SLOT, jobs)
    [job] = await leased(harness.store)
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]
    await harness.store.delete(Filter())

    assert await harness.store.tick("s", SLOT, jobs) is False
    assert await states(harness.store) == {}


async def test_a_job_that_exists_does_not_hold_up_the_slot(harness: Harness) -> None:
    await harness.store.enqueue([new(key="k")])

    assert await harness.store.tick("s", SLOT, [new(key="k"), new()]) is True
    assert await states(harness.store) == {"pending": 2}


async def test_if_the_jobs_cannot_be_stored_the_slot_stays(harness: Harness) -> None:
    with pytest.raises((UnstuckError, ValueError, TypeError)):
        await harness.store.tick("s", SLOT, [new(), new(payload=object())])

    assert await harness.store.slot("s") is None
    assert await states(harness.store) == {}
    assert await harness.store.tick("s", SLOT, [new()]) is True


async def test_of_many_ticks_at_once_one_is_let_pass(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(4)]

    for slot in (SLOT, LATER):
        answers = await asyncio.gather(*(store.tick("s", slot, [new()]) for store in stores * 2))
        assert sum(answers) == 1

    assert await states(harness.store) == {"pending": 2}


async def test_ticks_for_different_slots_at_once_leave_the_latest(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(4)]
    slots = [SLOT + timedelta(seconds=n) for n in range(8)]

    answers = await asyncio.gather(
        *(store.tick("s", slot, [new(key=str(slot))]) for store, slot in zip(stores * 2, slots, strict=True))
    )

    assert await harness.store.slot("s") == slots[-1]
    assert await states(harness.store) == {"pending": sum(answers)}
