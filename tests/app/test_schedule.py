"""Schedules: which slots there are, and that each of them brings one job."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import Child
from support.waiting import until_async

from unstuck import Call, ConfigError, Filter, Schedule, Scheduler, Unstuck, Worker, current_job, open_store
from unstuck.protocol.ids import keyed_id
from unstuck.protocol.job import Job
from unstuck.protocol.outcome import completed
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import QUEUE, leased, new

pytestmark = pytest.mark.anyio

CALL: Call[None] = Call(new(payload={"n": 1}))
HOUR = timedelta(hours=1)
YEAR = timedelta(days=366)
SPRING = datetime(2026, 3, 29)  # noqa: DTZ001 - made aware by its strategy


def schedule(name: str = "s", call: Any = CALL, **facts: Any) -> Schedule:
    return Schedule(name=name, call=call, **facts or {"every": HOUR})


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[arg-type, misc]


async def jobs(store: Store) -> list[Job]:
    """All jobs, the oldest first."""
    return (await store.find(Filter(), 1000)).jobs[::-1]


async def slots(store: Store) -> list[datetime]:
    """For which slots there are jobs."""
    keys = [job.key or "" for job in await jobs(store)]
    return [datetime.fromisoformat(key.split(":", 2)[2]) for key in keys]


async def missed(store: Store, hours: float) -> datetime:
    """Make the schedule "s" one that fired last so many hours ago; answers the present time.

    That is never just before the full hour, nor before its slot counts as missed a minute later: what a test expects
    by the clock now is also what a scheduler finds a moment later.
    """
    while (now := (await store.clock()).now).minute in (59, 0) and now.second >= 55:
        await asyncio.sleep(0.2)
    await store.tick("s", now - hours * HOUR, [])
    return now


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(scheduler.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_intervals_count_from_1970() -> None:
    every = schedule(every=timedelta(minutes=45))

    found = every.slots(utc(1970, 1, 1, 0, 45), utc(1970, 1, 1, 3))

    assert found == [utc(1970, 1, 1, 1, 30), utc(1970, 1, 1, 2, 15), utc(1970, 1, 1, 3)]
    assert every.next_slot(utc(1970, 1, 1, 2, 15)) == utc(1970, 1, 1, 3)


# Berlin, 2026: on 29 March 02:00 becomes 03:00 (01:00 UTC), on 25 October 03:00 becomes 02:00 (01:00 UTC).
@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        ("30 2 * * *", ["01:00"], ["00:30"]),
        ("0,30 2 * * *", ["01:00"], ["00:00", "00:30"]),
        ("*/30 2 * * *", ["01:00"], ["00:00", "00:30"]),
        ("0 */2 * * *", ["23:00", "01:00", "02:00"], ["00:00", "03:00"]),
        ("0 3 * * *", ["01:00"], ["02:00"]),
        ("30 * * * *", ["22:30", "23:30", "00:30", "01:30", "02:30"], ["22:30", "23:30", "00:30", "01:30", "02:30"]),
    ],
)  # fmt: skip
def test_a_time_that_is_left_out_or_comes_twice_fires_once(
    cron: str, spring: list[str], autumn: list[str]
) -> None:
    berlin = schedule(cron=cron, tz="Europe/Berlin")

    def fires(end: datetime) -> list[str]:
        return [f"{slot:%H:%M}" for slot in berlin.slots(end - timedelta(hours=5), end)]

    assert fires(utc(2026, 3, 29, 3)) == spring
    assert fires(utc(2026, 10, 25, 3)) == autumn


def test_in_the_second_run_of_an_hour_its_slots_lie_behind() -> None:
    berlin = schedule(cron="30 2 * * *", tz="Europe/Berlin")
    second_run = utc(2026, 10, 25, 1, 10)  # 02:10 for the second time

    assert berlin.next_slot(second_run) == utc(2026, 10, 26, 1, 30)
    assert berlin.slots(utc(2026, 10, 25, 0), second_run) == [utc(2026, 10, 25, 0, 30)]


@settings(deadline=None)
@given(
    cron=st.sampled_from(["30 2 * * *", "*/20 1-3 * * *", "0 * * * *", "0 0 1 * *", "15 */5 * * MON"]),
    tz=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"]),
    start=st.datetimes(SPRING - YEAR, SPRING + YEAR, timezones=st.just(UTC)),
    parts=st.lists(st.integers(1, 60 * 60 * 48), min_size=2, max_size=4),
)
def test_it_makes_no_difference_when_one_looks(cron: str, tz: str, start: datetime, parts: list[int]) -> None:
    one = schedule(cron=cron, tz=tz)
    end = start + timedelta(seconds=sum(parts))
    pieces: list[datetime] = []
    begin = start
    for part in parts:
        pieces += one.slots(begin, begin + timedelta(seconds=part), 1000)
        begin += timedelta(seconds=part)

    found = one.slots(start, end, 1000)

    assert found == pieces
    assert found[-3:] == one.slots(start, end, 3)
    assert one.next_slot(start) > end or one.next_slot(start) == found[0]


def test_the_latest_slots_of_ten_years_are_found_at_once() -> None:
    now = utc(2026, 1, 1)
    began = time.process_time()

    for rule in ({"cron": "* * * * *", "tz": "Europe/Berlin"}, {"every": 60}):
        found = schedule(**rule).slots(utc(2016, 1, 1), now)
        assert found == [now - timedelta(minutes=n) for n in reversed(range(100))]
    leap_days = schedule(cron="0 0 29 2 *").slots(utc(2016, 1, 1), now)
    assert leap_days == [utc(year, 2, 29) for year in (2016, 2020, 2024)]
    assert time.process_time() - began < 5.0  # one after the other, the minutes alone would take a minute


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"cron": "* * * *"}, r"'\* \* \* \*' has 4 fields: it must have five fields \(minute, hour"),
        ({"cron": "0 * * * * *"}, "has 6 fields.*for seconds use every="),
        ({"cron": "61 * * * *"}, "cannot be: bad minute; .* each in its range"),
        ({"cron": "0 0 30 2 *"}, "cannot be: bad day-of-month.* a day that some month has"),
        ({"cron": "0 0 * 2 MON#5,TUE#6"}, "bad day-of-week"),
        ({"cron": "0 0 31 4 */2"}, "bad day-of-month"),
        ({"cron": "@daily"}, "has 1 field: "),
        ({"cron": ""}, "has 0 fields"),
        ({"cron": "* " * 5000}, "must be a text of five fields"),
        ({"cron": 5}, "cron is 5: it must be a text"),
        ({"cron": "0 3 * * *", "tz": "Mars/Phobos"}, "'Mars/Phobos' is unknown here: use an IANA name"),
        ({"cron": "0 3 * * *", "tz": "../../etc/passwd"}, "is unknown here"),
        ({"cron": "0 3 * * *", "tz": "Europe"}, "is unknown here"),
        ({"cron": "0 3 * * *", "tz": ""}, "is unknown here"),
        ({"cron": "0 3 * * *", "tz": None}, "is unknown here"),
        ({"cron": "0 3 * * *", "tz": "a\0b"}, "is unknown here"),
        ({"every": 0.9}, "every is 0.9: it must be a number from 1 to"),
        ({"every": timedelta(days=367)}, "it must be a number from 1 to"),
        ({"every": float("nan")}, "every is nan"),
        ({"every": 10**5000}, "every is a number of thousands of digits"),
        ({"every": True}, "every is True"),
        ({"every": "1h"}, "every is '1h'"),
        ({"every": 60, "tz": "Europe/Berlin"}, "intervals know no time zone, use cron"),
        ({"every": 60, "cron": "0 3 * * *"}, "needs either cron or every"),
        ({"catch_up": "last"}, "needs either cron or every"),
        ({"every": 60, "catch_up": "some"}, "catch_up is 'some': it must be 'last', 'all' or 'none'"),
        ({"every": 60, "catch_up": []}, "catch_up is"),
        ({"every": 60, "name": "a b"}, "schedule name 'a b' is not allowed: 1 to 100 letters"),
        ({"every": 60, "name": None}, "schedule name None is not allowed"),
        ({"every": 60, "call": print}, "has no call but <built-in function print>"),
        ({"every": 60, "call": Call(new(key="k"))}, "has a call with a key or run_at: leave them out"),
        ({"every": 60, "call": Call(new(run_at=utc(2030, 1, 1)))}, "has a call with a key or run_at"),
    ],
    ids=lambda value: ascii(value)[:50] if "every" not in value else None,
)  # fmt: skip
def test_what_cannot_be_a_schedule_is_refused_when_it_is_made(facts: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        schedule(**facts)


def test_a_cron_expression_that_cannot_come_true_in_fifty_years_is_refused() -> None:
    with pytest.raises(ConfigError, match="never fires: choose a day that comes"):
        schedule(cron="0 0 */30 2 MON#5")


def test_an_app_has_each_schedule_once() -> None:
    app = Unstuck("sqlite:///:memory:")

    @app.task
    async def report(day: str) -> None: ...

    app.schedule("daily", report.call("today"), cron="0 3 * * *", tz="Europe/Berlin", catch_up="none")

    assert app.schedules["daily"].tz == "Europe/Berlin"
    with pytest.raises(ConfigError, match="schedule 'daily' exists already"):
        app.schedule("daily", report.call("tomorrow"), every=60)


async def test_a_schedule_never_seen_before_owes_nothing(harness: SQLiteHarness) -> None:
    minutely = schedule(cron="* * * * *", catch_up="all")

    pause = await Scheduler(harness.store, [minutely]).look()

    now = (await harness.store.clock()).now
    assert await jobs(harness.store) == []
    assert pause <= 30.0
    assert now - timedelta(seconds=10) < ((await harness.store.fleet()).slots.get("s") or now - HOUR) <= now


@pytest.mark.parametrize(("catch_up", "fired"), [("last", 1), ("all", 5), ("none", 0)])
async def test_missed_slots_are_caught_up_with_as_the_schedule_asks_for(
    harness: SQLiteHarness, catch_up: str, fired: int
) -> None:
    hourly = schedule(every=HOUR, catch_up=catch_up)
    now = await missed(harness.store, 5)
    expected = hourly.slots(now - 5 * HOUR, now)
    if now - expected[-1] <= timedelta(seconds=60):
        fired = max(fired, 1)  # the full hour has just struck: its slot is not missed

    for _ in range(2):  # the second look, by another process, finds nothing left to do
        await Scheduler(harness.store, [hourly]).look()

    assert await slots(harness.store) == expected[len(expected) - fired :]


async def test_of_a_long_outage_only_the_latest_hundred_slots_are_caught_up(harness: SQLiteHarness) -> None:
    minutely = schedule(cron="* * * * *", catch_up="all")
    await missed(harness.store, 24 * 365)

    await Scheduler(harness.store, [minutely]).look()

    found = await slots(harness.store)
    assert len(found) == 100
    assert found[-1] - found[0] == timedelta(minutes=99)


async def test_a_slot_of_just_now_is_not_missed(harness: SQLiteHarness) -> None:
    minutely = schedule(every=60, catch_up="none")
    await missed(harness.store, 1)

    await Scheduler(harness.store, [minutely]).look()

    assert len(await jobs(harness.store)) in (1, 2)  # one, or two if the clock stands at the full minute


def test_of_missed_slots_one_is_caught_up_unless_a_younger_one_fires_anyway() -> None:
    hourly = schedule(every=HOUR, catch_up="last")
    noon = utc(2026, 3, 29, 12)
    minute = timedelta(minutes=1)

    assert hourly.due(noon - 5 * HOUR, noon + minute * 59) == [noon]
    assert hourly.due(noon - 5 * HOUR, noon + minute) == [noon]
    assert hourly.due(noon - HOUR, noon - minute) == []
    secondly = schedule(every=1, catch_up="last")
    assert secondly.due(noon - HOUR, noon) == secondly.slots(noon - minute - timedelta(milliseconds=1), noon)


async def test_the_job_is_as_the_call_made_it_with_a_key_of_its_slot(harness: SQLiteHarness) -> None:
    call: Call[None] = Call(new(payload={"n": 1}, priority=3, lane="ann", max_attempts=7))
    await missed(harness.store, 2)

    await Scheduler(harness.store, [schedule(call=call)]).look()

    [job] = await jobs(harness.store)
    slot = (await harness.store.fleet()).slots.get("s")
    assert slot is not None
    assert job.key == f"schedule:s:{slot.isoformat()}"
    assert job.id == keyed_id(QUEUE, job.key)
    assert (job.payload, job.priority, job.lane, job.max_attempts) == ({"n": 1}, 3, "ann", 7)


async def test_a_handler_knows_the_slot_it_was_fired_for(tmp_path: Path) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def report() -> datetime | None:
        return current_job().slot

    slot = utc(2026, 3, 29, 1)
    fired: Call[datetime | None] = Call(schedule("daily", report.call()).job(slot), report.call().result)
    others = [report.options(key=key).call() for key in ("schedule:s:soon", "schedule:s:2026-03-29", "s:s:s")]
    async with app:
        handles = await app.enqueue_many([fired, report.call(), *others])
        await Worker(app, burst=True).run()

        assert [await handle.result(5) for handle in handles] == [slot, None, None, None, None]


async def test_a_slot_does_not_fire_again_when_its_job_was_deleted(harness: SQLiteHarness) -> None:
    await missed(harness.store, 2)
    await Scheduler(harness.store, [schedule()]).look()
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.store.delete(Filter())

    await Scheduler(harness.store, [schedule()]).look()

    assert await jobs(harness.store) == []


async def test_it_fires_when_the_slot_comes_and_not_before(harness: SQLiteHarness) -> None:
    secondly = schedule(every=1)

    async with running(Scheduler(harness.store, [secondly])):
        await until_async(lambda: _some(harness.store, 3), 20, "three jobs")

    for job in await jobs(harness.store):
        late = job.created_at - datetime.fromisoformat((job.key or "").removeprefix("schedule:s:"))
        assert timedelta(0) <= late < timedelta(seconds=5)


_SCHEDULER = """
import asyncio, sys
from unstuck import Call, Schedule, Scheduler, open_store
from unstuck.testing.conformance.given import new

async def main(url):
    async with open_store(url) as store:
        await Scheduler(store, [Schedule(name="s", call=Call(new()), every=1, catch_up="all")]).run()

asyncio.run(main(sys.argv[1]))
"""


async def test_three_processes_fire_each_slot_once(harness: SQLiteHarness, tmp_path: Path) -> None:
    with ExitStack() as children:
        for number in range(3):
            argv = [sys.executable, "-c", _SCHEDULER, harness.url]
            children.enter_context(Child(argv, tmp_path / f"{number}.log"))
        await until_async(lambda: _some(harness.store, 4), 30, "four jobs", tmp_path / "0.log")

    found = await slots(harness.store)
    assert found == [found[0] + timedelta(seconds=n) for n in range(len(found))]


async def test_many_that_look_at_the_same_moment_fire_each_slot_once(harness: SQLiteHarness) -> None:
    now = await missed(harness.store, 50)
    hourly = schedule(every=HOUR, catch_up="all")
    schedulers = [Scheduler(await harness.another(), [hourly]) for _ in range(3)]

    await asyncio.gather(*(scheduler.look() for scheduler in schedulers * 2))

    assert await slots(harness.store) == hourly.slots(now - 50 * HOUR, now)


async def test_it_goes_on_by_itself_after_an_outage(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.app.scheduler.RETRY", 0.05)
    store = open_store(harness.url)
    await store.__aenter__()
    async with running(Scheduler(store, [schedule(every=1)])) as task:
        await until_async(lambda: _some(harness.store, 1), 20, "a job")
        await store.__aexit__(None, None, None)
        await until_async(lambda: "schedules wait for the store" in caplog.text, 20, "the warning")
        before = len(await jobs(harness.store))
        await store.__aenter__()
        await until_async(lambda: _some(harness.store, before + 2), 20, "jobs after the outage")
        assert not task.done()
    await store.__aexit__(None, None, None)


async def test_a_schedule_that_cannot_fire_does_not_hold_up_the_others(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    broken: Call[None] = Call(new(priority=99))
    await missed(harness.store, 2)
    await harness.store.tick("broken", utc(2020, 1, 1), [])

    pause = await Scheduler(harness.store, [schedule("broken", broken), schedule()]).look()

    assert len(await jobs(harness.store)) == 1
    assert "schedule 'broken' could not fire, will try again" in caplog.text
    assert pause <= 2.0


async def test_a_schedule_that_fired_for_the_future_begins_again_now_and_logs_it(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await missed(harness.store, -24)  # by a clock that was a day ahead

    await Scheduler(harness.store, [schedule()]).look()

    assert await jobs(harness.store) == []
    assert "schedule 's' fired for" in caplog.text
    assert "it begins again now" in caplog.text


async def _some(store: Store, count: int) -> bool:
    return len(await jobs(store)) >= count
