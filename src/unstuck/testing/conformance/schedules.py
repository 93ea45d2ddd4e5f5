"""slot, slots and tick: a schedule moves on and its jobs are there, or neither. And which slots a scheduler fires for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

import pytest

from unstuck.app.call import Call
from unstuck.app.schedule import Schedule
from unstuck.app.scheduler import Scheduler
from unstuck.config.timing import MISSED
from unstuck.protocol.errors import UnstuckError
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import leased, new, states
from unstuck.testing.harnesses.harness import Harness

SLOT = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
LATER = SLOT + timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


async def test_a_schedule_never_seen_has_no_slot(harness: Harness) -> None:
    assert (await harness.store.fleet()).slots.get("s") is None


async def test_a_tick_sets_the_slot_and_enqueues_for_all_to_see(harness: Harness) -> None:
    assert await harness.store.tick("s", SLOT, [new(), new("other")]) is True

    other = await harness.another()
    assert (await other.fleet()).slots.get("s") == SLOT
    assert (await other.fleet()).slots.get("another") is None
    assert (await states(other), await states(other, "other")) == ({"pending": 1}, {"pending": 1})


async def test_a_slot_can_be_set_back_only_by_a_caller_that_names_the_last_one(harness: Harness) -> None:
    await harness.store.tick("s", LATER, [])

    assert await harness.store.tick("s", SLOT, [new()], instead_of=SLOT) is False
    assert await harness.store.tick("s", SLOT, [], instead_of=LATER) is True
    assert await harness.store.tick("s", SLOT, [new()], instead_of=LATER) is False
    assert ((await harness.store.fleet()).slots.get("s"), await states(harness.store)) == (SLOT, {})


async def test_a_schedule_does_not_wait_out_a_clock_that_was_put_back(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Slots that came before come again, and their jobs with them."""
    schedule = Schedule(name="s", call=Call(new()), every=1.0)
    scheduler = Scheduler(harness.store, [schedule])
    await scheduler.look()
    await harness.age(-7200)
    last = (await harness.store.fleet()).slots.get("s")
    assert last is not None
    now = (await harness.store.clock()).now
    for slot in schedule.slots(now, now + timedelta(seconds=60)):  # they were fired for, and are done
        await harness.store.enqueue([schedule.job(slot)])
    done = await leased(harness.store, 60)
    await harness.store.settle([completed(job.lease) for job in done])
    before = await states(harness.store)
    scheduler._looked += timedelta(hours=2)  # noqa: SLF001 - so late it was before

    async with asyncio.timeout(40):
        while "pending" not in await states(harness.store):
            await asyncio.sleep(await scheduler.look())
    assert before == {"completed": 60}
    assert [message for message in caplog.messages if "the clock was put back" in message]


async def test_a_schedule_whose_next_slot_was_fired_for_is_not_fired_twice(harness: Harness) -> None:
    schedule = Schedule(name="s", call=Call(new()), every=30 * 86400.0)
    now = (await harness.store.clock()).now
    await harness.store.tick("s", schedule.next_slot(now), [])

    await Scheduler(harness.store, [schedule]).look()

    assert (await harness.store.fleet()).slots.get("s") == schedule.next_slot(now)


async def test_a_store_in_which_nothing_ever_fired_has_no_slots(harness: Harness) -> None:
    await harness.store.enqueue([new()])

    assert (await harness.store.fleet()).slots == {}


async def test_every_schedule_is_reported_with_the_last_slot_it_fired_for(harness: Harness) -> None:
    names = ["daily", "Zürich", "a b", "'; DROP"]
    for name in names:
        assert await harness.store.tick(name, SLOT, [])
    assert await harness.store.tick("daily", LATER, [new()]) is True
    assert await harness.store.tick("a b", SLOT - timedelta(days=1), [new()]) is False

    other = await harness.another()
    slots = (await other.fleet()).slots
    assert slots == dict.fromkeys(names, SLOT) | {"daily": LATER}
    assert {slot.utcoffset() for slot in slots.values()} == {timedelta(0)}


async def test_a_schedule_is_reported_also_when_its_jobs_are_long_gone(harness: Harness) -> None:
    await harness.store.tick("s", SLOT, [new()])
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.store.delete(Filter())

    assert (await harness.store.fleet()).slots == {"s": SLOT}


async def test_a_tick_may_come_without_jobs(harness: Harness) -> None:
    assert await harness.store.tick("s", SLOT, []) is True
    assert (await harness.store.fleet()).slots.get("s") == SLOT


@pytest.mark.parametrize("early", [timedelta(0), timedelta(milliseconds=1), timedelta(days=999)])
async def test_a_slot_that_is_not_later_does_nothing(harness: Harness, early: timedelta) -> None:
    await harness.store.tick("s", SLOT, [])

    assert await harness.store.tick("s", SLOT - early, [new()]) is False

    assert (await harness.store.fleet()).slots.get("s") == SLOT
    assert await states(harness.store) == {}


async def test_the_next_slot_is_let_pass(harness: Harness) -> None:
    await harness.store.tick("s", SLOT, [new()])

    assert await harness.store.tick("s", LATER, [new()]) is True
    assert (await harness.store.fleet()).slots.get("s") == LATER
    assert await states(harness.store) == {"pending": 2}


async def test_the_time_zone_of_a_slot_does_not_matter(harness: Harness) -> None:
    await harness.store.tick("s", SLOT.astimezone(timezone(timedelta(hours=14))), [])

    assert (await harness.store.fleet()).slots.get("s") == SLOT
    assert await harness.store.tick("s", SLOT, []) is False


async def test_a_schedule_that_is_forgotten_begins_again(harness: Harness) -> None:
    await harness.store.tick("s", LATER, [new()])
    await harness.store.tick("other", SLOT, [])

    other = await harness.another()
    assert await other.tick("s", None, []) is True
    assert await other.tick("s", None, []) is False
    assert (await harness.store.fleet()).slots == {"other": SLOT}
    assert await harness.store.tick("s", SLOT, [new()]) is True
    assert await states(harness.store) == {"pending": 2}


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

    assert (await harness.store.fleet()).slots.get("s") is None
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

    assert (await harness.store.fleet()).slots.get("s") == slots[-1]
    assert await states(harness.store) == {"pending": sum(answers)}


@pytest.mark.parametrize("catch_up", ["last", "none"])
async def test_each_slot_that_is_less_than_a_minute_late_brings_its_job(
    harness: Harness, catch_up: Literal["last", "none"], caplog: pytest.LogCaptureFixture
) -> None:
    last, now = await _fired(harness, ago=10)

    await _look(harness, catch_up)

    found = await _slots(harness.store)
    assert found == [last + n * SECOND for n in range(1, len(found) + 1)]
    assert found[-1] > now - SECOND
    assert "missed" not in caplog.text


async def test_slots_that_were_missed_are_logged_once_by_all_that_look(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    last, now = await _fired(harness, ago=3600)

    await _look(harness, "last")

    found = await _slots(harness.store)
    assert found == [found[0] + n * SECOND for n in range(len(found))]
    assert now - MISSED - SECOND < found[0]
    assert found[-1] > now - SECOND
    [line] = [record.getMessage() for record in caplog.records if "missed" in record.message]
    assert f"schedule 's' missed its slots from {last + SECOND} to the one before {found[0]}" in line


async def _fired(harness: Harness, ago: float) -> tuple[datetime, datetime]:
    """Let the schedule "s" have fired last so many seconds ago; answers for which slot, and the present time."""
    await harness.store.tick("s", (await harness.store.clock()).now.replace(microsecond=0), [])
    await harness.age(ago)
    last = (await harness.store.fleet()).slots.get("s")
    assert last is not None
    return last, (await harness.store.clock()).now


async def _look(harness: Harness, catch_up: Literal["last", "none"]) -> None:
    """As two processes do that come at the same moment, and one that comes later."""
    secondly = Schedule(name="s", call=Call(new()), every=1, catch_up=catch_up)
    one, other = (Scheduler(store, [secondly]) for store in (harness.store, await harness.another()))
    await asyncio.gather(one.look(), other.look())
    await Scheduler(harness.store, [secondly]).look()


async def _slots(store: Store) -> list[datetime]:
    """The slots that jobs were enqueued for."""
    keys = [job.key or "" for job in (await store.find(Filter(), 1000)).jobs]
    return sorted(datetime.fromisoformat(key.removeprefix("schedule:s:")) for key in keys)
