"""A length of time is given in seconds or as a timedelta, wherever code gives one."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from unstuck import (
    ConfigError,
    JobPending,
    Policy,
    Rate,
    RateLimited,
    Reaper,
    Retry,
    Snooze,
    Status,
    Transient,
    Unstuck,
    Worker,
    classify,
    current_job,
)
from unstuck.testing import inline
from unstuck.text.phrases import lasting

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(tmp_path: Path) -> Unstuck:
    return Unstuck(f"sqlite:///{tmp_path}/jobs.db")


def test_a_policy_keeps_seconds() -> None:
    given: dict[str, Any] = {
        "lease": 5 * MINUTE,
        "heartbeat": timedelta(milliseconds=1500),
        "lapse_backoff": (MINUTE, 90),
        "stages": {"asr": timedelta(hours=1), "clip": 30},
        "retention": timedelta(days=3, hours=12),
    }

    policy = Policy(**given)

    assert (policy.lease, policy.heartbeat, policy.retention) == (300.0, 1.5, 3.5)
    assert (policy.lapse_backoff, policy.stages) == ((60.0, 90.0), {"asr": 3600.0, "clip": 30.0})


def test_a_rate_and_a_retry_keep_seconds() -> None:
    assert Rate(20, per=MINUTE) == Rate(20, per=60) == Rate(20, 60.0)
    assert Retry(backoff=(1, MINUTE)) == Retry(backoff=(1.0, 60.0))
    assert isinstance(Rate(20, per=MINUTE).per, float)


def test_a_queue_and_its_tasks_take_both(app: Unstuck) -> None:
    app.queue("media", lease=5 * MINUTE, heartbeat=timedelta(seconds=10), lapse_backoff=[MINUTE])

    @app.task(queue="media", timeout=2 * MINUTE, stall=MINUTE)
    def cut() -> None: ...

    assert app.queues["media"] == Policy(lease=300, heartbeat=10, lapse_backoff=(60,))
    assert (cut.call().job.timeout, cut.handler.stall) == (120.0, 60.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda app: app.task(name="t", timeout=timedelta(days=8))(lambda: None),
        lambda app: app.queue("q", lease=timedelta(days=8)),
        lambda _: Rate(1, per=timedelta(0)),
        lambda _: Retry(backoff=(timedelta(days=400),)),
        lambda app: Worker(app, grace=timedelta(days=2)),
        lambda app: Worker(app, recovery=timedelta(seconds=-1)),
        lambda app: Reaper(app.url, interval=timedelta(days=2)),
        lambda app: Reaper(app.url, grace=timedelta(days=8)),
    ],
)
def test_the_bounds_are_those_of_the_seconds(app: Unstuck, make: Any) -> None:
    app.task(name="known", queue="other")(lambda: None)
    with pytest.raises(ConfigError, match=r"it must be a number from .* \(seconds\)"):
        make(app)


def test_a_number_that_is_no_length_of_time_takes_no_timedelta() -> None:
    with pytest.raises(ConfigError, match="times the expected duration"):
        Policy(factors={"asr": MINUTE})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0.0 s"), (0.04, "0.0 s"), (4.2, "4.2 s"), (59.0, "59 s"), (90.0, "90 s"), (120.0, "2 min"), (7100.0, "118 min"),
        (7200.0, "2 h"), (172_000.0, "48 h"), (200_000.0, "2 d"), (3_542_400.0, "41 d"),
    ],
)  # fmt: skip
def test_a_length_of_time_is_printed_in_one_unit(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_a_delay_that_a_handler_asks_for_is_obeyed() -> None:
    assert classify(Transient("later", delay=MINUTE)).delay == 60.0
    assert classify(RateLimited(delay=MINUTE)).delay == 60.0


@pytest.mark.parametrize("isolate", [False, True])
async def test_a_job_is_snoozed_for_as_long_as_it_asks_for(tmp_path: Path, isolate: bool) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(isolate=isolate)(wait_an_hour)
    async with app:
        handle = await task.enqueue()
        await Worker(app, burst=True).run()
        job = await handle.job()

    assert job.status is Status.PENDING
    assert timedelta(minutes=59) < job.run_at - job.created_at < timedelta(minutes=90)


def wait_an_hour() -> None:
    current_job().stage("waiting", expected=MINUTE)
    raise Snooze(timedelta(hours=1))


async def test_a_result_is_waited_for_and_jobs_run_ahead_for_either(app: Unstuck) -> None:
    done: list[float] = []

    @app.task
    def work() -> None:
        done.append(time.monotonic())

    async with inline(app) as jobs:
        handle = await work.options(delay=timedelta(hours=1)).enqueue()
        with pytest.raises(JobPending, match=r"after 0\.05 s"):
            await handle.result(timeout=timedelta(milliseconds=50))
        await jobs.run(ahead=timedelta(minutes=59))
        assert done == []
        await jobs.run(ahead=timedelta(minutes=61))
        assert len(done) == 1
