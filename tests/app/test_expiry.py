"""``expires``: the time by which a job must have started, of one call or of a task."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from support.command import Command
from support.refusal import refusal
from support.work import burst

from unstuck import ConfigError, Filter, Job, JobFailed, Unstuck
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


def where() -> str:
    return "here"


def lasts(job: Job) -> float | None:
    return None if job.expires_at is None else round((job.expires_at - job.created_at).total_seconds(), 3)


async def test_a_call_has_its_own_time_or_that_of_its_task(app: Unstuck) -> None:
    task = app.task(expires=60)(where)

    usual = await (await task.enqueue()).job()
    own = await (await task.options(expires=timedelta(minutes=5)).enqueue()).job()
    other = await (await task.options(priority=3).enqueue()).job()
    sent = await (await app.send("where", {}, expires=30)).job()

    assert [lasts(job) for job in (usual, own, other, sent)] == [60.0, 300.0, 60.0, 30.0]


async def test_an_instant_is_taken_as_it_is(app: Unstuck) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)

    job = await (await app.task(where).options(expires=moment).enqueue()).job()

    assert job.expires_at is not None
    assert abs(job.expires_at - moment) < timedelta(milliseconds=2)


async def test_interfaces_that_know_only_the_name_can_say_it_too(app: Unstuck) -> None:
    app.task(expires=60, name="known")(where)
    jobs = await app.jobs()

    known = await jobs.enqueue_task("known", {})
    other = await jobs.enqueue_task("other", {}, queue="there", expires=timedelta(seconds=5))

    assert lasts(await jobs.get(known.id)) == 60.0
    assert lasts(await jobs.get(other.id)) == 5.0


async def test_a_worker_does_not_run_what_expired_and_who_waits_learns_why(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    handle = await app.task(where).options(expires=60).enqueue()
    await harness.age(61)

    await burst(app)

    with pytest.raises(JobFailed, match="not started before") as caught:
        await handle.result(timeout=0)
    assert caught.value.failure.code == "expired"
    assert (await handle.explain()).startswith("It expired ")
    assert f"unstuck retry {handle.id}" in await handle.explain()


async def test_explain_says_that_it_expired_before_a_reaper_came(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    handle = await app.task(where).options(expires=60).enqueue()
    await harness.age(61)

    assert "no worker starts it, and nobody fails it" in await handle.explain()


async def test_retrying_all_dead_letters_leaves_it_alone_but_its_id_does_not(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    handle = await app.task(where).options(expires=60).enqueue()
    await harness.age(61)
    jobs = await app.jobs()
    done = await jobs.recover()

    assert (done.recovered, done.failed, done.expired) == (0, 0, 1)
    assert await jobs.retry_failed_jobs() == 0
    assert (await jobs.get_health_status()).status == "HEALTHY"
    assert (await jobs.counts())[0].dead == 0

    assert await jobs.retry(Filter(ids=(handle.id,))) == 1
    await burst(app)
    assert await handle.result(timeout=0) == "here"


async def test_the_command_retries_what_expired_if_its_code_is_named(
    run: Command, app: Unstuck, harness: SQLiteHarness
) -> None:
    handle = await app.task(where).options(expires=60).enqueue()
    await harness.age(61)
    await (await app.jobs()).recover()

    assert run("retry", "--all", "--yes", store=harness.url).returncode == 0
    assert (await handle.job()).expired
    assert run("retry", "--code", "expired", "--yes", store=harness.url).returncode == 0
    assert (await handle.status()) == "pending"


@pytest.mark.parametrize(
    ("expires", "says"),
    [
        (0, "from 0.001 to"),
        ("soon", "'soon'"),
        (datetime(2027, 1, 1), "has no time zone"),  # noqa: DTZ001 - on purpose
        (datetime(3027, 1, 1, tzinfo=UTC), "out of range"),
    ],
)
def test_what_is_no_time_to_expire_is_refused(
    expires: object, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app = Unstuck(f"sqlite:///{tmp_path_factory.mktemp('app')}/jobs.db")

    message = refusal(lambda: app.task(where).options(expires=expires))  # type: ignore[arg-type]

    assert "expires" in message
    assert says in message


@pytest.mark.parametrize(
    "options",
    [
        lambda: {"expires": 60, "delay": 60},
        lambda: {
            "expires": datetime(2027, 1, 1, tzinfo=UTC),
            "run_at": datetime(2027, 1, 2, tzinfo=UTC),
        },
        lambda: {"expires": 60, "run_at": datetime.now(UTC) + timedelta(hours=1)},
        lambda: {"expires": datetime.now(UTC) + timedelta(minutes=1), "delay": 3600},
    ],
)
async def test_a_job_that_would_expire_before_it_is_due_is_refused(
    app: Unstuck, options: Callable[[], dict[str, object]]
) -> None:
    with pytest.raises(ConfigError, match="expire before it is due"):
        await app.task(where).options(**options()).enqueue()  # type: ignore[arg-type]


@pytest.mark.parametrize("expires", ["90", "15m", "2999-01-31T08:00:00+01:00"])
async def test_the_command_says_it_in_seconds_or_as_a_time(
    run: Command, harness: SQLiteHarness, expires: str
) -> None:
    answer = run("enqueue", "send", "--expires", expires, "--json", store=harness.url)

    [job] = (await harness.store.find(Filter())).jobs
    assert job.id == json.loads(answer.stdout)["id"]
    assert job.expires_at is not None


async def test_a_job_whose_time_later_calls_move_does_not_expire(app: Unstuck) -> None:
    with pytest.raises(ConfigError, match="debounce moves the time"):
        await app.task(expires=60)(where).options(key="k", debounce=5).enqueue()


async def test_a_wrong_time_is_one_line_and_exit_code_2(run: Command, harness: SQLiteHarness) -> None:
    answer = run("enqueue", "send", "--expires", "soon", store=harness.url)

    assert answer.returncode == 2
    assert "--expires 'soon'" in answer.stderr
