"""``on_success`` and ``on_failure``: tasks that follow the end of a job, added in the same step."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.refusal import refusal
from support.work import burst

from unstuck import Category, Failure, Filter, Permanent, Retry, Status, Transient, Unstuck
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio
ONCE = Retry(attempts=1)


class Seen:
    """What the tasks that follow were given."""

    def __init__(self, app: Unstuck, **options: Any) -> None:
        self.results: list[Any] = []
        self.failures: list[tuple[str, str, Failure]] = []

        @app.task(queue="follow", **options)
        async def ship(parcel: int, fast: bool = False) -> None:
            self.results.append((parcel, fast))

        @app.task(queue="follow", **options)
        async def report(which: str, task: str, why: Failure, urgent: bool = True) -> None:
            assert urgent
            self.failures.append((which, task, why))

        self.ship, self.report = ship, report


async def test_a_success_is_followed_by_a_job_with_the_result(app: Unstuck) -> None:
    seen = Seen(app)

    @app.task(on_success=seen.ship, on_failure=seen.report)
    async def pack(order: int) -> int:
        return order + 1

    handle = await pack.enqueue(6)
    await burst(app)

    assert (seen.results, seen.failures) == ([(7, False)], [])
    [follower] = (await (await app.jobs()).find(Filter(queue="follow"))).jobs
    assert follower.parent == handle.id


async def test_a_final_failure_is_followed_by_a_job_with_id_task_and_failure(app: Unstuck) -> None:
    seen = Seen(app)

    @app.task(retry=Retry(2, backoff=(0.0,)), on_success=seen.ship, on_failure=seen.report)
    async def pack(order: int) -> int:
        raise Transient("no box")

    handle = await pack.enqueue(6)
    await burst(app)

    assert seen.results == []
    [(which, task, why)] = seen.failures
    assert (which, task) == (handle.id, "pack")
    assert (why.category, why.message, why.attempt) == (Category.TRANSIENT, "no box", 2)


async def test_each_kind_of_handler_is_followed(app: Unstuck) -> None:
    seen = Seen(app)

    @app.task(on_success=seen.ship)
    def thread(order: int) -> int:
        return order

    @app.batch(5, queue="batch", on_success=seen.ship, on_failure=seen.report, retry=ONCE)
    async def together(orders: list[int]) -> list[int | Exception]:
        return [order if order % 2 else Permanent("even") for order in orders]

    await thread.enqueue(1)
    handles = [await together.enqueue(order) for order in (3, 4, 5)]
    await burst(app)

    assert sorted(seen.results) == [(1, False), (3, False), (5, False)]
    assert [which for which, _, _ in seen.failures] == [handles[1].id]


async def test_options_of_the_task_that_follows_hold_for_its_job(app: Unstuck) -> None:
    seen = Seen(app)
    app.queue("slow", max_crashes=4)
    later = {"queue": "slow", "priority": 7, "delay": 60, "retry": Retry(9, backoff=(3.0,)), "timeout": 8}

    @app.task(retry=ONCE, on_success=seen.ship.options(**later), on_failure=seen.report.options(**later))  # type: ignore[arg-type]
    async def pack(order: int) -> int:
        if order:
            return order
        raise Permanent("nothing")

    await app.enqueue_many([pack.call(0), pack.call(1)])
    await burst(app)

    found = (await (await app.jobs()).find(Filter(queue="slow"))).jobs
    assert {job.task for job in found} == {"ship", "report"}
    assert {
        (job.priority, job.max_attempts, job.backoff, job.timeout, job.max_crashes, job.status)
        for job in found
    } == {(7, 9, (3.0,), 8.0, 4, Status.PENDING)}


async def test_what_follows_can_be_followed_itself(app: Unstuck) -> None:
    seen = Seen(app)

    @app.task(retry=ONCE, on_failure=seen.report)
    async def apologise(which: str, task: str, why: Failure) -> None:
        raise Permanent("no words")

    @app.task(retry=ONCE, on_failure=apologise)
    async def pack(order: int) -> int:
        raise Permanent("no box")

    await pack.enqueue(1)
    await burst(app)

    assert [(task, why.message) for _, task, why in seen.failures] == [("apologise", "no words")]


async def test_a_job_that_expires_is_followed_as_a_failure(app: Unstuck, harness: SQLiteHarness) -> None:
    seen = Seen(app)
    pack = app.task(on_failure=seen.report, expires=60)(_pack)
    handle = await pack.enqueue(1)
    await harness.age(61)

    await burst(app)
    await burst(app)

    assert [(which, why.code) for which, _, why in seen.failures] == [(handle.id, "expired")]


async def test_a_reaper_that_does_not_know_the_app_adds_it(app: Unstuck, harness: SQLiteHarness) -> None:
    seen = Seen(app)
    pack = app.task(on_failure=seen.report, expires=60)(_pack)
    await pack.enqueue(1)
    await harness.age(61)

    subprocess.run(
        [sys.executable, "-m", "unstuck", "reap", "--once", "--store", harness.url], check=True, timeout=60
    )

    [follower] = (await (await app.jobs()).find(Filter(queue="follow"))).jobs
    assert (follower.task, follower.payload["task"]) == ("report", "_pack")


async def test_a_cancelled_job_is_not_followed(app: Unstuck) -> None:
    seen = Seen(app)
    handle = await app.task(on_failure=seen.report)(_pack).enqueue(1)

    await handle.cancel()
    await burst(app)

    assert seen.failures == []


async def test_a_result_that_the_next_task_does_not_take_fails_the_job_and_says_so(app: Unstuck) -> None:
    seen = Seen(app)

    @app.task(on_success=seen.ship)
    async def pack() -> str:
        return "a box"

    handle = await pack.enqueue()
    await burst(app)

    job = await handle.job()
    assert (job.status, seen.results) == (Status.FAILED, [])
    assert job.error is not None
    assert job.error.code == "invalid_result"
    assert "ship" in job.error.message


def test_what_cannot_follow_is_refused_where_it_is_declared(tmp_path: Path) -> None:
    app, other = Unstuck(f"sqlite:///{tmp_path}/a.db"), Unstuck(f"sqlite:///{tmp_path}/b.db")
    seen = Seen(app)

    def on(**options: Any) -> str:
        return refusal(lambda: app.task(**options)(_pack))

    assert "must be a task" in on(on_success=_pack)
    assert "another app" in on(on_failure=Seen(other).report)
    assert "has a key or a fixed time" in on(on_success=seen.ship.options(key="k"))
    assert "on_success of task '_pack' must take the result" in on(on_success=seen.report)
    assert "must take the id, the task and the failure" in on(on_failure=seen.ship)
    assert "unstuck.Failure" in on(on_failure=app.task(_numbers))


async def _pack(order: int) -> int:
    return order


async def _numbers(one: int, two: int, three: int) -> None: ...
