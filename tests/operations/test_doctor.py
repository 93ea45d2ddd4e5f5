"""What doctor finds leads to the cause, and to a next step that does no harm."""

import re
from datetime import timedelta

import pytest

from unstuck.operations.doctor import LONG_WAIT, MOST_WORKERS, doctor
from unstuck.operations.schedules import FORGOTTEN
from unstuck.protocol.availability import Clock
from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.job import Category, Failure, NewJob
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.operators import Finding
from unstuck.protocol.outcome import failed, retried
from unstuck.protocol.retry import crash_fate
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, one_leased, trouble

pytestmark = pytest.mark.anyio


def trouble_of(code: str) -> Failure:
    return Failure(category=Category.PERMANENT, code=code, message="no")


async def troubles(store: Store) -> dict[str, str]:
    """What is not ok, with what to do about it."""
    return {found.what: found.fix for found in await doctor(store, seconds=0.0) if found.level != "ok"}


async def alive(store: Store, id_: str = "w", **facts: object) -> None:
    usual = {"queues": ("q",), "tasks": ("task",), "concurrency": 5, "host": "h", "pid": 7}
    await store.heartbeat(WorkerInfo(id=id_, **usual | facts), [])  # type: ignore[arg-type]


async def test_workers_are_named_with_what_they_take(harness: SQLiteHarness) -> None:
    await alive(harness.store, queues=("mail", "q"))
    await alive(harness.store, "x", health=Health(status="DEGRADED", why="recovery is off", recovering=False))

    found = await doctor(harness.store, seconds=0.0)

    assert Finding("ok", "worker w of h takes mail, q: 0 of 5 run") in found
    [(what, fix)] = (await troubles(harness.store)).items()
    assert what == "worker x of h takes q, and is DEGRADED: recovery is off"
    assert fix.startswith("start it without --recovery 0")


async def test_jobs_of_those_that_fell_silent_within_their_lease_are_found(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store, seconds=7200.0, owner="frozen")
    await harness.age(600)
    await alive(harness.store)

    assert await troubles(harness.store) == {
        "1 job of queue q: held by workers that no longer send heartbeats: frozen": f"unstuck explain {job.id} --queue q"
    }


@pytest.mark.parametrize("recovering", [True, False])
async def test_leases_that_ran_out_while_the_server_was_down_are_reported_with_until_when_they_are_waited_for(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch, recovering: bool
) -> None:
    """Their workers get the lease's own length from the server's start, of which ten seconds are over."""
    await one_leased(harness.store, seconds=60.0)
    await harness.age(600)
    now = (await harness.store.clock()).now

    async def restarted() -> Clock:
        return Clock(now, 10.0)

    monkeypatch.setattr(harness.store, "clock", restarted)
    await alive(harness.store, health=Health(recovering=recovering))

    found = await doctor(harness.store, seconds=0.0)

    [told] = [one for one in found if "ran out" in one.what]
    assert told.what.startswith(
        "1 lease of queue q ran out; the store was down, so the workers of 1 have until "
    )
    assert told.level == ("warning" if recovering else "failure")
    assert ("no living worker recovers them" in told.what) is not recovering
    [until] = re.findall(r"until (\S+) UTC", told.what)
    assert until in {f"{now + timedelta(seconds=late):%H:%M:%S}" for late in (48, 49, 50, 51)}


async def test_a_job_that_loses_its_workers_again_and_again_is_found(harness: SQLiteHarness) -> None:
    [ref] = await enqueued(harness.store, max_attempts=9)
    for _ in range(2):
        await leased(harness.store)
        await harness.age(61)
        [taken] = (await harness.store.reclaim(Recovery("reaper", 30.0, 10))).jobs
        await harness.store.settle([retried(taken.lease, trouble(), 0.0, crashed=True)])
    await alive(harness.store)

    found = await troubles(harness.store)

    assert found[f"job {ref.id} of queue q lost its worker 2 times, in 2 attempts of 9"].startswith(
        f"if it kills them: unstuck cancel {ref.id}"
    )


async def test_a_task_that_no_worker_knows_is_a_failure(harness: SQLiteHarness) -> None:
    await harness.store.enqueue([NewJob(queue="q", task="tasks", id=f"{n}", delay=5) for n in range(9)])
    await alive(harness.store)

    [(what, _)] = (await troubles(harness.store)).items()

    assert what.startswith("9 jobs: Task 'tasks' is unknown to every worker of queue 'q'")
    assert "did you mean 'task'?" in what


async def test_a_rate_is_not_answered_by_more_workers(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 163)
    await alive(harness.store, limits={"q": {"rate": {"count": 5, "per": 60, "bucket": None}}})
    await harness.store.take("q", 5, 5, 60.0)

    [(what, fix)] = (await troubles(harness.store)).items()

    assert "its 163 due jobs will take about 33 min, however many workers there are" in what
    assert fix == "raise its rate, or enqueue less"


async def test_jobs_that_failed_and_wait_are_reported_with_why(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([retried(job.lease, trouble(), 1800.0)])
    await alive(harness.store)

    found = await doctor(harness.store, seconds=0.0)

    told = "1 job of queue q failed, another attempt is to come: 1 trouble"
    assert Finding("ok", told, f"unstuck explain {job.id} --queue q") in found
    assert Finding("ok", "queue q: 0 wait, 1 are delayed, 0 run") in found
    assert await troubles(harness.store) == {}


async def test_dead_letters_are_reported_by_kind_and_retried_by_kind(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 3)
    jobs = await harness.store.lease({"q": Share(60.0, 3)}, 3, "w")
    codes = ("refused", "refused", "bad_address")
    await harness.store.settle(
        [failed(job.lease, trouble_of(code)) for job, code in zip(jobs, codes, strict=True)]
    )

    [(what, fix)] = (await troubles(harness.store)).items()

    assert what == "3 dead letters in queue q: 2 refused, 1 bad_address"
    assert fix.endswith("unstuck retry --code refused --queue q")


async def test_a_worker_of_a_misspelt_queue_is_suspected(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 2, queue="thumbnails")
    await alive(harness.store, queues=("thumbnail",))

    [(what, fix)] = (await troubles(harness.store)).items()

    assert what == "2 jobs wait in queue thumbnails, and no worker takes it"
    assert fix.endswith("--queue thumbnails (workers take thumbnail: is a name misspelt?)")


async def test_a_schedule_that_nobody_fires_any_more_is_found(harness: SQLiteHarness) -> None:
    now = (await harness.store.clock()).now
    await harness.store.tick("settlement", now - timedelta(days=3), [])
    await harness.store.tick("report", now - timedelta(days=3), [])
    await alive(harness.store, schedules=("report",))

    [(what, fix)] = (await troubles(harness.store)).items()

    assert (
        what
        == "schedule settlement came last, or was first seen, 3 d ago, and no worker that is alive fires it"
    )
    assert fix.startswith("start a worker of the app that declares it")


async def test_a_job_with_a_budget_of_crashes_is_judged_by_that(harness: SQLiteHarness) -> None:
    [ref] = await enqueued(harness.store, max_attempts=2, max_crashes=10)
    for _ in range(3):
        await leased(harness.store)
        await harness.age(61)
        [taken] = (await harness.store.reclaim(Recovery("reaper", 30.0, 10))).jobs
        await harness.store.settle([crash_fate(taken, trouble())])
    await alive(harness.store)

    assert (
        f"job {ref.id} of queue q lost its worker 3 times, and after 10 it fails for good"
        in await troubles(harness.store)
    )


async def test_every_worker_that_is_not_well_is_named_however_many_there_are(harness: SQLiteHarness) -> None:
    for number in range(MOST_WORKERS + 2):
        await alive(harness.store, f"a{number:02}")
    await alive(harness.store, "z", health=Health(status="CRITICAL", why="the disk is broken"))

    found = await doctor(harness.store, seconds=0.0)

    assert [one.what for one in found if one.level == "failure"] == [
        "worker z of h takes q, and is CRITICAL: the disk is broken"
    ]
    assert Finding("ok", "2 more workers alive", "unstuck top") in found


async def test_dead_letters_of_unknown_cause_are_retried_by_queue(harness: SQLiteHarness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])
    harness.rows("UPDATE job SET error = NULL")

    [(what, fix)] = (await troubles(harness.store)).items()

    assert what == "1 dead letter in queue q: 1 of unknown cause"
    assert fix.endswith("unstuck retry --queue q")


async def test_a_schedule_that_was_taken_out_long_ago_is_no_trouble(harness: SQLiteHarness) -> None:
    now = (await harness.store.clock()).now
    await harness.store.tick("settlement", now - timedelta(seconds=FORGOTTEN + 60), [])

    assert await troubles(harness.store) == {}


async def test_kinds_of_dead_letters_that_are_not_named_are_counted(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 7)
    jobs = await harness.store.lease({"q": Share(60.0, 7)}, 7, "w")
    await harness.store.settle([failed(job.lease, trouble_of(f"kind{n}")) for n, job in enumerate(jobs)])

    [what] = await troubles(harness.store)

    assert what.startswith("7 dead letters in queue q: 1 kind")
    assert what.endswith(", 2 others")


async def test_a_job_that_waits_beside_workers_with_room_is_reported(harness: SQLiteHarness) -> None:
    await enqueued(harness.store)
    await harness.age(LONG_WAIT + 60)
    await alive(harness.store, running=5)
    assert await troubles(harness.store) == {}

    await alive(harness.store, running=4)

    [what] = await troubles(harness.store)
    assert (
        what == "the next job of queue q has been due for 2 min, and workers have room, yet nobody takes it"
    )
