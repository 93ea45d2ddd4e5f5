"""Schedules made at run time: records that every scheduler of the store fires, once per slot, as they are at that slot."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Literal

import pytest

from unstuck.app.call import Call
from unstuck.app.schedule import Schedule
from unstuck.app.scheduler import Scheduler
from unstuck.operations.jobs import Jobs
from unstuck.operations.stored_schedules import KIND
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import slot_of
from unstuck.protocol.job import Job
from unstuck.protocol.operators import Filter
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import QUEUE, new
from unstuck.testing.harnesses.harness import Harness

# So long that no slot comes while a test runs, but in one minute of a month.
MONTH = 30 * 86400.0
DECLARED = Schedule(name="s", call=Call(new(payload={"n": 1})), every=MONTH)


async def test_a_stored_schedule_fires_each_slot_once_for_all_programs(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    added = await jobs.add_schedule(
        "s", "task", {"n": 1}, every=MONTH, catch_up="all", queue=QUEUE, priority=3
    )
    stores = [harness.store, *[await harness.another() for _ in range(2)]]
    schedulers = [Scheduler(store) for store in stores]
    for scheduler in schedulers:  # all know it; nothing is due
        await scheduler.look()
    assert await fired(harness.store) == []

    due = await slots_of(harness, months=3)
    await asyncio.gather(*(scheduler.look() for scheduler in [*schedulers, *map(Scheduler, stores)]))

    assert [slot_of(job.key) for job in await fired(harness.store)] == due
    [first, *_] = await fired(harness.store)
    assert (first.task, first.payload, first.priority, first.max_attempts) == ("task", {"n": 1}, 3, 3)
    [status] = await jobs.schedules()
    assert (status.last_slot, status.version, status.declared) == (due[-1], added.version, False)
    assert status.next_slot == DECLARED.next_slot(due[-1])


@pytest.mark.parametrize("catch_up", ["last", "all", "none"])
async def test_what_a_pause_kept_back_is_missed(
    harness: Harness, catch_up: Literal["last", "all", "none"]
) -> None:
    jobs, scheduler = Jobs(harness.store), Scheduler(harness.store)
    await jobs.add_schedule("s", "task", every=MONTH, catch_up=catch_up, queue=QUEUE)
    await scheduler.look()
    await jobs.pause_schedule("s", "year end")
    due = await slots_of(harness, months=3)
    await scheduler.look()
    await Scheduler(await harness.another()).look()
    [status] = await jobs.schedules()
    assert (await fired(harness.store), status.paused, status.next_slot) == ([], "year end", None)

    assert await jobs.resume_schedule("s") is True
    assert await jobs.resume_schedule("s") is False
    await scheduler.look()

    expected = {"last": due[-1:], "all": due, "none": []}[catch_up]
    assert [slot_of(job.key) for job in await fired(harness.store)] == expected


async def test_a_change_holds_for_the_next_slot_in_every_process(harness: Harness) -> None:
    jobs, store = Jobs(harness.store), harness.store
    schedulers = [Scheduler(store), Scheduler(await harness.another())]
    await jobs.add_schedule("s", "task", {"n": 1}, every=MONTH, catch_up="all", queue=QUEUE)
    await asyncio.gather(*(scheduler.look() for scheduler in schedulers))

    changed = await jobs.change_schedule("s", arguments={"n": 2}, queue="other", priority=5)
    due = await slots_of(harness, months=2)
    await asyncio.gather(*(scheduler.look() for scheduler in schedulers))

    assert (changed.every, changed.arguments, changed.queue) == (MONTH, {"n": 2}, "other")
    found = await fired(store)
    assert [slot_of(job.key) for job in found] == due
    assert {(job.queue, job.priority, job.payload["n"]) for job in found} == {("other", 5, 2)}


async def test_new_times_begin_with_their_next_slot(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    await jobs.add_schedule("s", "task", every=MONTH, catch_up="all", queue=QUEUE)
    await slots_of(harness, months=2)  # that nobody fired for: they are not those of the new times

    changed = await jobs.change_schedule("s", every=MONTH / 2)
    await Scheduler(harness.store).look()
    assert (changed.every, await fired(harness.store)) == (MONTH / 2, [])

    due = await slots_of(harness, months=2, every=MONTH / 2)
    await Scheduler(harness.store).look()
    assert [slot_of(job.key) for job in await fired(harness.store)] == due


async def test_a_deleted_schedule_fires_no_more_and_leaves_nothing(harness: Harness) -> None:
    jobs, scheduler = Jobs(harness.store), Scheduler(harness.store)
    await jobs.add_schedule("s", "task", every=MONTH, queue=QUEUE)
    await scheduler.look()

    await jobs.delete_schedule("s")
    await slots_of(harness, months=2)
    await scheduler.look()
    await Scheduler(await harness.another()).look()

    assert (await fired(harness.store), await jobs.schedules()) == ([], [])
    assert ((await harness.store.fleet()).slots, await harness.store.kept(KIND)) == ({}, [])
    with pytest.raises(ConfigError, match=r"no schedule is named 's' \(there are none\)"):
        await jobs.delete_schedule("s")


async def test_a_schedule_that_is_made_again_owes_nothing(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    for _ in range(2):
        await jobs.add_schedule("s", "task", every=MONTH, catch_up="all", queue=QUEUE)
        await slots_of(harness, months=2)
        await jobs.delete_schedule("s")
    await jobs.add_schedule("s", "task", every=MONTH, catch_up="all", queue=QUEUE)

    await Scheduler(harness.store).look()

    assert await fired(harness.store) == []


async def test_a_run_by_hand_has_a_slot_of_its_own_also_during_a_pause(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    await jobs.add_schedule("s", "task", {"n": 1}, every=MONTH, queue=QUEUE, priority=2)
    await jobs.pause_schedule("s")
    before = (await harness.store.clock()).now

    ran = [await jobs.run_schedule("s")]
    await asyncio.sleep(0.002)  # two runs in one millisecond are one
    ran.append(await jobs.run_schedule("s"))

    found = await fired(harness.store)
    assert [job.id for job in found] == [one.id for one in ran]
    after = (await harness.store.clock()).now
    for job in found:
        slot = slot_of(job.key)
        assert slot is not None
        assert before <= slot <= after
        assert (job.payload, job.priority) == ({"n": 1}, 2)
    await Scheduler(harness.store).look()
    assert len(await fired(harness.store)) == 2


async def test_who_has_not_seen_the_latest_change_changes_nothing(harness: Harness) -> None:
    jobs, other = Jobs(harness.store), Jobs(await harness.another())
    seen = await jobs.add_schedule("s", "task", every=MONTH, queue=QUEUE)
    changed = await other.change_schedule("s", priority=1, version=seen.version)

    with pytest.raises(
        ConfigError, match=f"has version {changed.version}, not {seen.version}: somebody changed"
    ):
        await jobs.change_schedule("s", priority=2, version=seen.version)
    with pytest.raises(ConfigError, match="somebody changed it"):
        await jobs.delete_schedule("s", version=seen.version)
    await jobs.delete_schedule("s", version=changed.version)


async def test_changes_of_different_things_at_once_are_all_made(harness: Harness) -> None:
    clients = [Jobs(harness.store), *[Jobs(await harness.another()) for _ in range(3)]]
    await clients[0].add_schedule("s", "task", every=MONTH, queue=QUEUE)

    await asyncio.gather(
        clients[0].change_schedule("s", arguments={"n": 2}),
        clients[1].change_schedule("s", queue="other"),
        clients[2].change_schedule("s", every=60),
        clients[3].pause_schedule("s", "all at once"),
    )

    now = await clients[1].schedule("s")
    assert (now.arguments, now.queue, now.every, now.paused) == ({"n": 2}, "other", 60, "all at once")


async def test_of_two_that_make_a_schedule_at_once_one_wins(harness: Harness) -> None:
    clients = [Jobs(harness.store), Jobs(await harness.another())]

    made = await asyncio.gather(
        *(
            client.add_schedule("s", "task", {"n": n}, every=MONTH, queue=QUEUE)
            for n, client in enumerate(clients)
        ),
        return_exceptions=True,
    )

    [lost] = [one for one in made if isinstance(one, BaseException)]
    assert "schedule 's' exists already" in str(lost)
    assert (await clients[0].schedule("s")).arguments == {"n": 0 if lost is made[1] else 1}


async def test_a_declared_schedule_is_shown_paused_and_run_by_those_who_have_no_code(
    harness: Harness,
) -> None:
    jobs, scheduler = Jobs(await harness.another()), Scheduler(harness.store, [DECLARED])
    await harness.store.heartbeat(WorkerInfo(id="w", schedules=("s",)), [])
    await scheduler.look()
    [shown] = await jobs.schedules()
    assert (shown.declared, shown.every, shown.task, shown.fired_by) == (True, MONTH, "task", ("w",))
    assert (shown.queue, shown.arguments) == (QUEUE, {"n": 1})

    await jobs.pause_schedule("s")
    due = await slots_of(harness, months=2)
    await scheduler.look()
    assert await fired(harness.store) == []
    await jobs.run_schedule("s")
    [by_hand] = await fired(harness.store)
    assert by_hand.payload == {"n": 1}
    assert await jobs.resume_schedule("s")
    await scheduler.look()
    assert [slot_of(job.key) for job in await fired(harness.store) if job.id != by_hand.id] == due[-1:]


async def test_a_pause_of_a_declared_schedule_outlives_its_processes(harness: Harness) -> None:
    await Scheduler(harness.store, [DECLARED]).look()
    await Jobs(harness.store).pause_schedule("s", "until it is fixed")
    await slots_of(harness, months=2)
    changed = Schedule(name="s", call=Call(new(payload={"n": 2})), every=MONTH)

    await Scheduler(harness.store, [changed]).look()  # a new release

    [shown] = await Jobs(harness.store).schedules()
    assert (shown.paused, shown.arguments) == ("until it is fixed", {"n": 2})
    assert await fired(harness.store) == []


async def test_code_owns_what_it_declares(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    await Scheduler(harness.store, [DECLARED]).look()
    await harness.store.heartbeat(WorkerInfo(id="w", schedules=("s",)), [])

    with pytest.raises(
        ConfigError, match="'s' is declared in code, so it cannot be changed here: change the code"
    ):
        await jobs.change_schedule("s", every=60)
    with pytest.raises(ConfigError, match="'s' is declared in code, so it cannot be deleted here"):
        await jobs.delete_schedule("s")
    with pytest.raises(ConfigError, match="'s' exists already"):
        await jobs.add_schedule("s", "task", every=60, queue=QUEUE)

    await harness.store.heartbeat(WorkerInfo(id="w", schedules=("s",), left=True), [])
    await jobs.delete_schedule("s")  # it was taken out of the code
    assert await jobs.schedules() == []


async def test_code_that_declares_the_name_of_a_stored_schedule_replaces_it(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    await Jobs(harness.store).add_schedule("s", "stored", every=MONTH, catch_up="all", queue=QUEUE)
    other = Scheduler(await harness.another())
    await other.look()

    await Scheduler(harness.store, [DECLARED]).look()
    due = await slots_of(harness, months=2)
    await other.look()  # which has no such code
    assert await fired(harness.store) == []
    await Scheduler(harness.store, [DECLARED]).look()

    assert [(job.task, slot_of(job.key)) for job in await fired(harness.store)] == [("task", due[-1])]
    assert "schedule 's' is declared in the code now, which replaces the one made at run time" in caplog.text


async def slots_of(harness: Harness, *, months: int, every: float = MONTH) -> list[datetime]:
    """Let so many months pass; answers the slots that came meanwhile, and none is of the last minute."""
    while (now := (await harness.store.clock()).now) - DECLARED.slots(now - timedelta(seconds=MONTH), now)[
        -1
    ] < timedelta(minutes=2):
        await asyncio.sleep(0.5)
    await harness.age(months * MONTH)
    schedule = Schedule(name="s", call=DECLARED.call, every=every)
    return schedule.slots(now - timedelta(seconds=months * MONTH), now)


async def fired(store: Store) -> list[Job]:
    """The jobs of schedules, in the order of their slots."""
    jobs = (await store.find(Filter(), 1000)).jobs
    return sorted(jobs, key=lambda job: slot_of(job.key) or job.run_at)
