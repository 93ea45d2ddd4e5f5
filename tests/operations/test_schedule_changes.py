"""Schedules made at run time: what is refused, what the app's tasks check, what operators see, and what a worker makes of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, Jobs, PayloadError, Schedule, Scheduler, Unstuck, WorkerInfo
from unstuck.app.call import Call
from unstuck.app.scheduler import LOOK
from unstuck.operations import schedule_changes
from unstuck.operations.doctor import doctor
from unstuck.operations.stored_schedules import KIND, LARGEST
from unstuck.protocol.ids import slot_of
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import new
from unstuck.testing.conformance.stored_schedules import fired

pytestmark = pytest.mark.anyio

DAY = 86400.0


@pytest.fixture
async def jobs(harness: SQLiteHarness) -> Jobs:
    return Jobs(harness.store)


@pytest.mark.parametrize(
    ("facts", "reported"),
    [
        ({"cron": "* * * *"}, r"schedule 's': cron '\* \* \* \*' has 4 fields"),
        ({"cron": "0 0 30 2 *"}, "schedule 's': cron .* cannot be"),
        ({"cron": "0 3 * * *", "tz": "Mars/Phobos"}, "schedule 's': time zone 'Mars/Phobos' is unknown"),
        ({"every": 0.5}, "schedule 's': every is 0.5: it must be a number from 1 to"),
        ({"every": timedelta(days=400)}, "every is"),
        ({"every": 60, "cron": "0 3 * * *"}, "schedule 's': it needs either cron or every"),
        ({}, "schedule 's': it needs either cron or every"),
        ({"every": 60, "tz": "Europe/Berlin"}, "intervals know no time zone"),
        ({"every": 60, "catch_up": "some"}, "catch_up is 'some'"),
        ({"every": 60, "name": "a b"}, "schedule name 'a b' is not allowed"),
        ({"every": 60, "name": ""}, "schedule name '' is not allowed"),
        ({"every": 60, "task": " "}, "task name ' ' is not allowed"),
        ({"every": 60, "queue": "a b"}, "queue name 'a b' is not allowed"),
        ({"every": 60, "priority": 10}, "priority is 10"),
        ({"every": 60, "retry": 0}, "attempts is 0"),
        ({"every": 60, "delay": -1}, "delay is -1"),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused_and_leaves_nothing(
    jobs: Jobs, facts: dict[str, Any], reported: str
) -> None:
    with pytest.raises(ConfigError, match=reported):
        await jobs.add_schedule(**{"name": "s", "task": "task"} | facts)

    assert await jobs.schedules() == []


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ([1], "arguments are \\[1\\]: they must be a JSON object"),
        ({"n": object()}, "payload"),
        (
            {"text": "x" * LARGEST},
            "schedule 's': .* bytes as JSON, at most 16,384 are allowed; store its arguments",
        ),
    ],
)
async def test_arguments_that_no_record_can_hold_are_refused(
    jobs: Jobs, arguments: Any, reported: str
) -> None:
    with pytest.raises(PayloadError, match=reported):
        await jobs.add_schedule("s", "task", arguments, every=60)

    assert await jobs.schedules() == []


async def test_a_change_is_checked_like_a_new_schedule(jobs: Jobs) -> None:
    before = await jobs.add_schedule("s", "task", {"n": 1}, cron="0 3 * * *", tz="Europe/Berlin")

    for wrong in (
        {"cron": "61 * * * *"},
        {"tz": "Mars/Phobos"},
        {"every": 0},
        {"every": 60, "cron": "0 3 * * *"},
        {"every": 60, "tz": "Europe/Berlin"},
        {"catch_up": "some"},
        {"priority": -1},
        {"queue": ""},
    ):
        with pytest.raises(ConfigError):
            await jobs.change_schedule("s", **wrong)
    with pytest.raises(PayloadError):
        await jobs.change_schedule("s", arguments={"text": "x" * LARGEST})
    with pytest.raises(ConfigError, match="why is ''"):
        await jobs.pause_schedule("s", "")
    assert (await jobs.schedule("s")).version == before.version

    changed = await jobs.change_schedule("s", every=60)
    assert (changed.cron, changed.every, changed.tz, changed.arguments) == (None, 60, "UTC", {"n": 1})
    changed = await jobs.change_schedule("s", cron="0 4 * * *")
    assert (changed.cron, changed.every, changed.tz) == ("0 4 * * *", None, "UTC")
    changed = await jobs.change_schedule("s", tz="Europe/Berlin", catch_up="none")
    assert (changed.cron, changed.tz, changed.catch_up) == ("0 4 * * *", "Europe/Berlin", "none")


async def test_a_change_of_nothing_but_the_job_keeps_slots_that_were_missed(
    harness: SQLiteHarness, jobs: Jobs
) -> None:
    await jobs.add_schedule("s", "task", {"n": 1}, every=DAY, catch_up="all")
    await harness.age(3 * DAY)

    await jobs.change_schedule("s", arguments={"n": 2})
    await Scheduler(harness.store).look()

    assert [job.payload for job in await fired(harness.store)] == [{"n": 2}] * 3


@pytest.mark.parametrize("name", ["dialy", "'; DROP", "a b", ""])
async def test_a_name_that_is_not_known_is_reported_with_those_that_are(jobs: Jobs, name: str) -> None:
    await jobs.add_schedule("daily", "task", every=60)

    for act in (
        jobs.pause_schedule,
        jobs.resume_schedule,
        jobs.run_schedule,
        jobs.delete_schedule,
        jobs.change_schedule,
    ):
        with pytest.raises(
            ConfigError, match=r"no schedule is named 'dialy' \(did you mean 'daily'\?\)|is not allowed"
        ):
            await act(name)


async def test_the_tasks_of_an_app_bring_their_policy_and_check_the_arguments(
    harness: SQLiteHarness, app: Unstuck
) -> None:
    @app.task(queue="mail", retry=7, timeout=30)
    async def send(to: str, count: int = 1) -> None: ...

    jobs = await app.jobs()
    with pytest.raises(PayloadError, match=r"task 'send': .*'whom'"):
        await jobs.add_schedule("s", "send", {"whom": "ann"}, every=DAY)
    with pytest.raises(ConfigError, match="registered with its own queue"):
        await jobs.add_schedule("s", "send", {"to": "ann"}, every=DAY, queue="other")
    with pytest.raises(ConfigError, match=r"the app has no task 'sned' .did you mean 'send'"):
        await jobs.add_schedule("s", "sned", {"to": "ann"}, every=DAY)
    added = await jobs.add_schedule("s", "send", {"to": "ann"}, every=DAY)
    assert (added.queue, added.arguments) == ("mail", {"to": "ann", "count": 1})
    with pytest.raises(PayloadError, match="Expected `int`"):
        await jobs.change_schedule("s", arguments={"to": "ann", "count": "two"})
    await jobs.change_schedule("s", arguments={"to": "bob"})

    await harness.age(2 * DAY)
    await Scheduler(harness.store).look()

    job = (await fired(harness.store))[-1]
    assert (job.queue, job.payload, job.max_attempts, job.timeout) == (
        "mail",
        {"to": "bob", "count": 1},
        7,
        30,
    )


async def test_a_store_has_no_more_schedules_than_every_worker_can_read(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_changes, "MOST", 2)
    for name in "ab":
        await jobs.add_schedule(name, "task", every=60)

    with pytest.raises(ConfigError, match="the store has 2 schedules, at most 2 are allowed: delete some"):
        await jobs.add_schedule("c", "task", every=60)


async def test_all_schedules_are_listed_and_fired_however_many_pages_that_are(
    harness: SQLiteHarness, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.operations.stored_schedules.PAGE", 2)
    for name in "abcde":
        await jobs.add_schedule(name, "task", every=DAY)
    await harness.age(2 * DAY)

    await Scheduler(harness.store).look()

    assert len(await fired(harness.store)) == 5
    assert [one.schedule for one in await jobs.schedules()] == list("abcde")


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"every": 60},
        {"job": {"queue": "q"}},
        {"job": {"queue": "q", "task": "t", "id": ""}, "every": 0},
        {"job": {"queue": "q", "task": "t", "id": ""}, "cron": "0 3 * * *", "tz": "Mars/Phobos"},
        {"job": {"queue": "q", "task": "t", "id": "", "key": "k"}, "every": 60},
        {"job": {"queue": "q", "task": "t", "id": "", "run_at": "2026-01-01T00:00:00Z"}, "every": 60},
    ],
)
async def test_a_record_that_is_no_schedule_is_reported_and_holds_up_nobody(
    harness: SQLiteHarness, jobs: Jobs, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.add_schedule("good", "task", every=DAY)
    await harness.store.keep(KIND, "bad", value)
    await harness.store.keep(KIND, "not a name", {"job": {"queue": "q", "task": "t", "id": ""}, "every": 60})
    await harness.age(2 * DAY)

    scheduler = Scheduler(harness.store)
    for _ in range(3):
        await scheduler.look()

    assert len(await fired(harness.store)) == 1
    assert (
        len([line for line in caplog.messages if "schedule 'bad': its record cannot be used here" in line])
        == 1
    )
    bad = await jobs.schedule("bad")
    assert "its record cannot be used here" in bad.trouble
    found = [finding for finding in await doctor(harness.store, seconds=0) if "schedule bad" in finding.what]
    assert [finding.fix for finding in found] == ["unstuck schedules delete bad, and add it again"]
    with pytest.raises(ConfigError, match=r"schedule 'bad': its record cannot be used here.*delete it"):
        await jobs.pause_schedule("bad")
    await jobs.delete_schedule("bad")
    assert "bad" not in [one.schedule for one in await jobs.schedules()]


async def test_doctor_finds_what_is_paused_what_nobody_fires_and_what_nobody_can_run(
    harness: SQLiteHarness, jobs: Jobs
) -> None:
    async def findings() -> dict[str, str]:
        found = await doctor(harness.store, seconds=0)
        return {one.what: one.fix for one in found if one.what.startswith("schedule ")}

    await jobs.add_schedule("s", "send", every=DAY, queue="mail")
    text = "schedule s was made at run time, and no worker that is alive fires it"
    assert await findings() == {text: "start a worker, or: unstuck schedules delete s"}

    worker = WorkerInfo(id="w", queues=("other",), tasks=("send",), fires_stored=True)
    await harness.store.heartbeat(worker, [])
    assert list(await findings()) == ["schedule s: No worker takes queue 'mail'"]
    worker = WorkerInfo(id="w", queues=("mail",), tasks=("sent",), fires_stored=True)
    await harness.store.heartbeat(worker, [])
    [what] = await findings()
    assert what.startswith("schedule s: Task 'send' is unknown to every worker of queue 'mail'")
    worker = WorkerInfo(id="w", queues=("mail",), tasks=("send",), fires_stored=True)
    await harness.store.heartbeat(worker, [])
    assert await findings() == {}

    await jobs.pause_schedule("s", "year end")
    resume = "when it is to fire again: unstuck schedules resume s"
    assert await findings() == {"schedule s is paused: year end": resume}


async def test_a_worker_that_does_not_fire_stored_schedules_is_not_counted(
    harness: SQLiteHarness, jobs: Jobs
) -> None:
    await jobs.add_schedule("s", "task", every=DAY)
    await harness.store.heartbeat(WorkerInfo(id="of the release before"), [])
    await harness.store.heartbeat(WorkerInfo(id="w", fires_stored=True), [])

    assert (await jobs.schedule("s")).fired_by == ("w",)


async def test_a_schedule_of_which_only_the_slots_are_known_can_be_paused_and_deleted(
    harness: SQLiteHarness, jobs: Jobs
) -> None:
    """As one is whose workers are of a release that wrote nothing else down."""
    declared = Schedule(name="s", call=Call(new()), every=DAY)
    for name in ("s", "gone"):
        await harness.store.tick(name, (await jobs.now()) - timedelta(days=2), [])

    await jobs.pause_schedule("s", "before its workers start")
    await jobs.delete_schedule("gone")
    await Scheduler(harness.store, [declared]).look()

    [shown] = await jobs.schedules()
    assert (shown.schedule, shown.paused, shown.every) == ("s", "before its workers start", DAY)
    assert await fired(harness.store) == []


async def test_a_declared_job_that_no_record_can_hold_fires_and_is_not_shown(
    harness: SQLiteHarness, jobs: Jobs
) -> None:
    large = Schedule(name="s", call=Call(new(payload={"text": "x" * LARGEST})), every=DAY)
    await Scheduler(harness.store, [large]).look()
    await harness.age(2 * DAY)
    await Scheduler(harness.store, [large]).look()

    shown = await jobs.schedule("s")
    assert (shown.task, shown.every, len(await fired(harness.store))) == (None, DAY, 1)
    with pytest.raises(ConfigError, match="the store does not have its job"):
        await jobs.run_schedule("s")


async def test_an_idle_scheduler_looks_again_within_seconds(harness: SQLiteHarness, jobs: Jobs) -> None:
    scheduler = Scheduler(harness.store)
    assert LOOK < 5.0
    assert await scheduler.look() <= LOOK
    await jobs.add_schedule("s", "task", cron="0 0 29 2 *")

    assert await scheduler.look() <= LOOK


async def test_a_process_that_stands_still_while_it_looks_obeys_a_pause_all_the_same(
    harness: SQLiteHarness, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that came after the pause does not fire, although the schedule was read before it."""
    await jobs.add_schedule("s", "task", every=1, catch_up="all")
    store = await harness.another()
    kept, paused_at = store.kept, list[datetime]()

    async def paused_meanwhile(*args: Any) -> Any:
        found = await kept(*args)
        if not found and not paused_at:
            await jobs.pause_schedule("s")
            paused_at.append(await jobs.now())
            await asyncio.sleep(1.1)
        return found

    monkeypatch.setattr(store, "kept", paused_meanwhile)
    await Scheduler(store).look()

    assert len(paused_at) == 1
    assert [
        job for job in await fired(harness.store) if (slot_of(job.key) or job.run_at) > paused_at[0]
    ] == []


async def test_a_worker_without_schedules_of_its_own_fires_one_that_is_added_while_it_runs(
    harness: SQLiteHarness, app: Unstuck
) -> None:
    ran = asyncio.Event()

    @app.task
    async def report(kind: str) -> None:
        if kind == "hourly":
            ran.set()

    jobs = await app.jobs()
    async with at_work(app) as worker:

        async def there() -> bool:
            return any(one.id == worker.id for one in await jobs.workers())

        await until_async(there, 30, "the worker's heartbeat")
        added = await jobs.add_schedule("s", "report", {"kind": "hourly"}, every=1)
        await until_async(ran.is_set, 60, "the job of a slot")
        assert added.fired_by == (worker.id,)


async def test_times_are_shown_as_their_zone_has_them(jobs: Jobs) -> None:
    await jobs.add_schedule("s", "task", cron="30 2 * * *", tz="Europe/Berlin")

    found = (await jobs.schedule("s")).next_slot

    assert found is not None
    assert found.tzinfo is UTC
    local = Schedule(name="s", call=Call(new()), cron="30 2 * * *", tz="Europe/Berlin")
    assert found == local.next_slot(datetime.now(UTC)) or found - datetime.now(UTC) < timedelta(minutes=1)


def test_there_is_a_form_for_code_without_an_event_loop(tmp_path: Any) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")
    jobs = app.jobs_sync()

    added = jobs.add_schedule("s", "task", every=60)
    jobs.pause_schedule("s")
    assert jobs.resume_schedule("s")
    assert jobs.change_schedule("s", every=90, version=None).version > added.version
    assert jobs.run_schedule("s").created
    jobs.delete_schedule("s")
    assert jobs.schedules() == []
