"""Jobs is the one door: it enqueues tasks by name, opens stores by URL, and has the same methods for synchronous code."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unstuck.cli
from unstuck import ConfigError, Jobs, PayloadError, Retry, SyncJobs, Unstuck
from unstuck.operations.schedules import ScheduleStatus
from unstuck.testing import Harness
from unstuck.testing.conformance.given import one_leased


def registered(app: Unstuck) -> None:
    app.queue("mail", max_crashes=7, lapse_backoff=(30, 60))

    @app.task(queue="mail", retry=Retry(attempts=5, backoff=(0.5, 9.0)), timeout=12.0)
    async def send(to: str, count: int = 1) -> str:
        return to * count


@pytest.mark.anyio
async def test_a_registered_task_is_enqueued_as_if_it_were_called(app: Unstuck) -> None:
    registered(app)
    jobs = await app.jobs()
    handle = await app.tasks["send"].options(key="a", priority=3, lane="x").enqueue("ann")

    repeated = await jobs.enqueue_task("send", {"to": "ann"}, key="a")
    named = await jobs.enqueue_task("send", {"to": "ann"}, priority=3, lane="x", key="b")

    assert (repeated.id, repeated.created, repeated.same) == (handle.id, False, True)
    called, found = await handle.job(), await jobs.get(named.id)
    assert (found.queue, found.max_attempts, found.backoff, found.timeout) == ("mail", 5, (0.5, 9.0), 12.0)
    assert (found.max_crashes, found.lapse_backoff) == (7, (30.0, 60.0))
    its_own = {"id", "key", "created_at", "run_at"}
    for name in set(found.__struct_fields__) - its_own:
        assert getattr(found, name) == getattr(called, name), name


@pytest.mark.anyio
async def test_a_task_that_is_known_by_name_only_is_given_its_queue_and_retries(app: Unstuck) -> None:
    jobs = await app.jobs()
    plain = await jobs.enqueue_task("send", {"to": "ann"})
    tried = await jobs.enqueue_task("send", {}, queue="mail", retry=Retry(attempts=9, backoff=(7.0,)))
    twice = await jobs.enqueue_task("send", {}, retry=2)

    found = [await jobs.get(one.id) for one in (plain, tried, twice)]
    assert [(job.queue, job.max_attempts, job.backoff) for job in found] == [
        ("default", 3, (1.0, 2.0, 4.0)),
        ("mail", 9, (7.0,)),
        ("default", 2, (1.0, 2.0, 4.0)),
    ]
    assert found[0].payload == {"to": "ann"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("task", "arguments", "options", "error", "text"),
    [
        ("send", {"to": 5}, {}, PayloadError, "task 'send': Expected `str`, got `int`"),
        ("send", {}, {}, PayloadError, "missing a required argument: 'to'"),
        ("send", ["ann"], {}, PayloadError, "arguments are ['ann']: they must be a JSON object"),
        (
            "send",
            {"to": "a"},
            {"queue": "mail"},
            ConfigError,
            "registered with its own queue: leave queue out",
        ),
        ("send", {"to": "a"}, {"retry": 3}, ConfigError, "registered with its own retry: leave retry out"),
        ("send", {"to": "a"}, {"priority": 10}, ConfigError, "priority is 10"),
        ("sned", {"to": "a"}, {}, ConfigError, "the app has no task 'sned' (did you mean 'send'?)"),
        ("other", {"x": float("nan")}, {"queue": "q"}, PayloadError, "is not a number in JSON"),
        ("a b\n", {}, {"queue": "q"}, ConfigError, "task name"),
    ],
)
async def test_what_cannot_be_enqueued_is_refused(
    app: Unstuck, task: str, arguments: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    registered(app)
    jobs = await app.jobs()
    with pytest.raises(error, match=re.escape(text)):
        await jobs.enqueue_task(task, arguments, **options)
    assert (await jobs.counts()) == []


@pytest.mark.anyio
async def test_an_unknown_task_needs_its_queue_where_an_app_is_known(app: Unstuck) -> None:
    registered(app)
    added = await (await app.jobs()).enqueue_task("of_another_app", {"x": 1}, queue="theirs")
    assert (added.queue, added.created) == ("theirs", True)


@pytest.mark.anyio
async def test_an_overview_is_what_the_single_questions_answer(harness: Harness) -> None:
    jobs = Jobs(harness.store)
    job = await one_leased(harness.store, owner="w")
    await jobs.enqueue_task("send", {}, queue="mail")

    seen = await jobs.overview()
    assert [(of.queue, of.pending, of.processing) for of in seen.queues] == [("mail", 1, 0), ("q", 0, 1)]
    assert seen.health == await jobs.get_health_status()
    assert ([one.id for one in seen.running], seen.dead, seen.workers) == ([job.id], [], [])
    assert (seen.schedules, seen.taken) == (list[ScheduleStatus](), set[str]())
    assert (await jobs.overview(running=0, dead=0)).running == []


@pytest.mark.anyio
async def test_a_store_is_created_only_on_demand(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with pytest.raises(ConfigError, match="does not exist"):
        async with Jobs.open(url):
            pass
    assert not (tmp_path / "jobs.db").exists()

    async with Jobs.open(url, create=True) as jobs:
        await jobs.enqueue_task("send", {})
    async with Jobs.open(url) as jobs:
        assert [of.pending for of in await jobs.counts()] == [1]
        assert await jobs.verify() == []
        assert b'unstuck_jobs{queue="default",status="pending"} 1.0' in await jobs.metrics()
        assert (await jobs.recover()).recovered == await jobs.recover_stale_jobs() == 0


def test_synchronous_code_opens_the_same_door(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = Unstuck(url)
    registered(app)

    with SyncJobs.open(url, create=True) as jobs:
        added = jobs.enqueue_task("send", {"to": "ann"}, queue="mail", key="a")
        assert jobs.get_by_id_or_key("a").id == added.id
        with pytest.raises(ConfigError, match="limit"):
            jobs.find(limit=0, which=None)  # type: ignore[arg-type]
    of_app = app.jobs_sync()
    assert of_app.enqueue_task("send", {"to": "ann"}, key="a").created is False
    assert [of.pending for of in of_app.counts()] == [1]
    assert of_app.cancel(added.id) == 1


def test_both_forms_have_the_same_methods() -> None:
    """A method that is added to one of them must be added to the other."""
    both = methods(Jobs, inspect.iscoroutinefunction)
    assert methods(SyncJobs, inspect.isfunction) == both
    assert {"enqueue_task", "overview", "doctor", "verify", "recover", "schedules", "events"} <= both
    for name in both:
        one, other = getattr(Jobs, name), getattr(SyncJobs, name)
        assert other.__wrapped__ is one
        assert not inspect.iscoroutinefunction(other)
        assert inspect.signature(one) == inspect.signature(other), name


def methods(of: type, kind: Callable[[Any], bool]) -> set[str]:
    found = [entry for one in of.__mro__ for entry in vars(one).items()]
    return {name for name, value in found if kind(value) and not name.startswith("_")} - {"open"}


def test_the_command_opens_no_store_by_itself() -> None:
    """Import contracts see modules only, and ``open_store`` is also a name of the package."""
    folder = Path(unstuck.cli.__file__ or "").parent
    past = [file.name for file in folder.rglob("*.py") if re.search(r"\bopen_store\b", file.read_text())]
    assert past == []
