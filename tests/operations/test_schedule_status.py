"""Schedules as operators see them: which there are, who fires them, and which nobody does."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.command import Command, said
from support.waiting import until_async
from support.work import at_work

from unstuck import Jobs, Unstuck, open_store
from unstuck.operations.health import WORKER_SILENT
from unstuck.operations.schedules import schedule_findings, statuses
from unstuck.protocol.fleet import WorkerInfo
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio

SLOT = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
LATER = SLOT + timedelta(days=1)
EARLY, LATE = WorkerInfo(id="a", schedules=("hourly",)), WorkerInfo(id="b", schedules=("daily", "hourly"))


def test_every_schedule_is_named_with_those_who_fire_it() -> None:
    found = statuses({"settlement": SLOT, "hourly": LATER}, [LATE, EARLY], [], LATER)

    assert [(one.schedule, one.last_slot, one.fired_by) for one in found] == [
        ("daily", None, ("b",)),
        ("hourly", LATER, ("a", "b")),
        ("settlement", SLOT, ()),
    ]
    assert statuses({}, [], [], LATER) == []


def test_what_fired_before_and_nobody_alive_declares_is_found() -> None:
    slots = {"hourly": LATER, "a": LATER, "settlement": SLOT}

    def silent(slots: dict[str, datetime], workers: list[WorkerInfo]) -> list[str]:
        found = schedule_findings(statuses(slots, workers, [], LATER), LATER)
        return [finding.what.split()[1] for finding in found]

    assert silent(slots, [EARLY, LATE]) == ["a", "settlement"]
    assert silent(slots, []) == ["a", "hourly", "settlement"]
    assert silent({}, [EARLY, LATE]) == []
    assert silent({"hourly": SLOT}, [WorkerInfo(id="of a queue of another app", queues=("q",)), EARLY]) == []


async def test_a_worker_reports_what_it_fires_until_it_ends(harness: SQLiteHarness, app: Unstuck) -> None:
    @app.task
    async def settle() -> None: ...

    app.schedule("settlement", settle.call(), every=timedelta(days=1))
    app.schedule("report", settle.call(), cron="0 3 * * *")

    async def fired() -> dict[str, tuple[str, ...]]:
        found = await Jobs(harness.store).schedules()
        return {one.schedule: one.fired_by for one in found if one.last_slot}

    async with at_work(app) as worker:
        both = {"report": (worker.id,), "settlement": (worker.id,)}

        async def seen() -> bool:
            return await fired() == both

        await until_async(seen, 30, "both schedules to be seen")
    assert await fired() == {"report": (), "settlement": ()}


async def test_who_fell_silent_fires_nothing(harness: SQLiteHarness) -> None:
    await harness.store.tick("hourly", SLOT, [])
    await harness.store.heartbeat(EARLY, [])
    [one] = await Jobs(harness.store).schedules()
    assert one.fired_by == ("a",)

    await harness.age(WORKER_SILENT + 1)
    [one] = await Jobs(harness.store).schedules()
    assert one.fired_by == ()


async def test_a_worker_of_a_release_that_did_not_report_is_still_read(harness: SQLiteHarness) -> None:
    await harness.store.heartbeat(EARLY, [])
    harness.rows("UPDATE worker SET facts = json_remove(facts, '$.schedules')")
    assert harness.rows("SELECT facts FROM worker WHERE facts LIKE '%schedules%'") == []

    [worker] = (await harness.store.fleet()).workers
    assert (worker.id, worker.schedules) == ("a", ())


@pytest.mark.slow
def test_the_command_shows_the_schedule_that_nobody_fires(run: Command, tmp_path: Path) -> None:
    async def begin() -> None:
        async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
            await store.migrate()
            await store.tick("settlement", SLOT, [])
            await store.tick("hourly", LATER, [])
            for id_ in "abc":
                await store.heartbeat(WorkerInfo(id=id_, schedules=("hourly", "new")), [])
            await store.heartbeat(WorkerInfo(id="gone", schedules=("settlement",), left=True), [])

    assert run("schedules").returncode == 2  # there is no such file yet
    asyncio.run(begin())

    assert run("schedules").stdout.splitlines() == [
        "SCHEDULE    WHEN  TASK  NEXT  LAST              FIRED BY   NOTE",
        "hourly                        2026-03-30 01:00  3 workers",
        "new                                             3 workers",
        "settlement                    2026-03-29 01:00  nobody",
    ]
    assert [
        (one["schedule"], one["last_slot"], one["fired_by"]) for one in said(run("schedules", "--json"))
    ] == [
        ("hourly", "2026-03-30T01:00:00Z", ["a", "b", "c"]),
        ("new", None, ["a", "b", "c"]),
        ("settlement", "2026-03-29T01:00:00Z", []),
    ]
