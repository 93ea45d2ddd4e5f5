"""The worker, in this process: what it takes, what it runs, how it ends."""

import asyncio
import threading
from typing import Any

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import burst

from unstuck import (
    Filter,
    JobFailed,
    PayloadError,
    Permanent,
    Retry,
    Status,
    Transient,
    Unstuck,
    Worker,
    current_job,
)
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("MQ-002", "MQ-012")
async def test_each_job_is_run_by_its_own_handler_in_its_own_queue(app: Unstuck) -> None:
    @app.task(queue="mail")
    async def send(to: str) -> str:
        return f"sent to {to}"

    @app.task(queue="sums")
    def add(a: int, b: int = 1) -> int:
        return a + b

    mail, total = await send.enqueue("ann"), await add.enqueue(2)
    await burst(app)

    assert await mail.result() == "sent to ann"
    assert await total.result() == 3
    assert (mail.queue, total.queue) == ("mail", "sums")


async def test_plain_functions_run_in_threads_beside_the_loop(app: Unstuck) -> None:
    @app.task
    def where() -> str:
        return f"{threading.current_thread().name} {current_job().job.task}"

    handle = await where.enqueue()
    await burst(app)

    assert (await handle.result()).startswith("unstuck-job")
    assert (await handle.result()).endswith(" where")


async def test_no_more_jobs_run_at_a_time_than_allowed(app: Unstuck) -> None:
    now_running = most = 0

    @app.task
    async def job() -> None:
        nonlocal now_running, most
        now_running += 1
        most = max(most, now_running)
        await asyncio.sleep(0.005)
        now_running -= 1

    await app.enqueue_many([job.call() for _ in range(60)])
    await burst(app, concurrency=4)

    assert most == 4


@pytest.mark.accepts("MQ-020")
async def test_a_transient_error_is_retried_after_its_backoff(app: Unstuck, harness: SQLiteHarness) -> None:
    tries: list[int] = []

    @app.task(retry=Retry(attempts=4, backoff=(1.0, 2.0, 4.0)))
    async def flaky() -> str:
        tries.append(current_job().attempt)
        if len(tries) < 4:
            raise ConnectionResetError("gone")
        return "at last"

    handle = await flaky.enqueue()
    book = await spied(app)
    delays = []
    for _ in range(4):
        await burst(app)
        job = await handle.job()
        assert job.started_at is not None
        delays.append((job.run_at - job.started_at).total_seconds())
        await harness.age(30)

    assert tries == [1, 2, 3, 4]
    assert await handle.result() == "at last"
    asked = [outcome.delay for call in book.of("settle") for outcome in call.args[0]]
    for delay, wanted, step in zip(delays[:3], asked[:3], (1.0, 2.0, 4.0), strict=True):
        assert step <= wanted <= step * 1.2
        assert delay >= wanted - 0.002  # the store counts from when it is told


@pytest.mark.accepts("MQ-021", "MQ-025")
async def test_an_error_that_stays_makes_a_dead_letter(app: Unstuck, harness: SQLiteHarness) -> None:
    @app.task(retry=2)
    async def broken() -> None:
        raise Transient("still broken", code="upstream")

    handle = await broken.enqueue()
    await burst(app)
    await harness.age(30)
    await burst(app)

    with pytest.raises(JobFailed, match="still broken") as caught:
        await handle.result()
    assert (caught.value.failure.code, caught.value.failure.attempt) == ("upstream", 2)
    [dead] = (await (await app.jobs()).find(Filter(dead=True))).jobs
    assert dead.id == handle.id


async def test_a_permanent_error_is_not_retried(app: Unstuck) -> None:
    @app.task(retry=5)
    async def refuse() -> None:
        raise Permanent("no such customer")

    handle = await refuse.enqueue()
    await burst(app)

    job = await handle.job()
    assert (job.status, job.attempts) == (Status.FAILED, 1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_whatever_a_handler_raises_is_the_jobs_failure_not_the_workers(
    app: Unstuck, error: BaseException, kind: str
) -> None:
    @app.task(retry=1, name="async")
    async def in_loop() -> None:
        raise error

    @app.task(retry=1, name="thread")
    def in_thread() -> None:
        raise error

    @app.task
    async def fine() -> str:
        return "fine"

    bad = await (in_loop if kind == "async" else in_thread).enqueue()
    good = await fine.enqueue()
    await burst(app)

    assert await bad.status() is Status.FAILED
    assert await good.result() == "fine"


async def test_a_handler_that_cancels_itself_fails_its_job_only(app: Unstuck) -> None:
    @app.task(retry=1)
    async def suicidal() -> None:
        raise asyncio.CancelledError

    handle = await suicidal.enqueue()
    await burst(app)

    assert await handle.status() is Status.FAILED


async def test_a_plain_function_that_returns_a_coroutine_is_named(app: Unstuck) -> None:
    async def inner() -> None: ...

    @app.task
    def forgot_async():  # type: ignore[no-untyped-def]
        return inner()

    handle = await forgot_async.enqueue()
    await burst(app)

    with pytest.raises(JobFailed, match=r"forgot_async.*async def"):
        await handle.result()


async def test_a_result_that_is_no_json_fails_for_good_and_names_the_type(app: Unstuck) -> None:
    @app.task(retry=3)
    async def odd() -> object:
        return threading.Lock()

    handle = await odd.enqueue()
    await burst(app)

    with pytest.raises(JobFailed, match="lock"):
        await handle.result()
    assert (await handle.job()).attempts == 1


async def test_a_result_that_is_too_large_does_not_undo_the_work(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def huge() -> str:
        return "x" * 5_000_000

    @app.task
    async def loose() -> Any:
        return "x" * 5_000_000

    kept = "the result had 5,000,002 bytes as JSON, at most 1,048,576 are kept"
    for task in (huge, loose):
        handle = await task.enqueue()
        await burst(app)

        assert await handle.status() is Status.COMPLETED
        assert (await handle.job()).result["unstuck"] == "result dropped"
        with pytest.raises(PayloadError) as caught:
            await handle.result()
        told = f"job {handle.id} is completed, but {kept}"
        assert str(caught.value).startswith(f"{told}: store the data elsewhere")
        assert f"job {handle.id} of task {task.name} is completed, but {kept}" in caplog.messages


async def test_a_payload_that_no_longer_fits_fails_for_good(app: Unstuck, harness: SQLiteHarness) -> None:
    old = Unstuck(harness.url)

    @old.task(name="greet", retry=5)
    async def greet_before(name: str) -> str:
        return name

    @app.task(name="greet", retry=5)
    async def greet(name: str, language: str) -> str:
        return name + language

    async with old:
        handle = await greet_before.enqueue("ann")
    await burst(app)

    job = await (await app.jobs()).get(handle.id)
    assert (job.status, job.attempts) == (Status.FAILED, 1)
    assert job.error is not None
    assert (job.error.category, job.error.code) == ("PERMANENT", "invalid_payload")
    assert "language" in job.error.message


async def test_an_unknown_task_is_given_back_unspent_later_and_later(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    newer = Unstuck(harness.url)

    @newer.task
    async def from_the_future() -> None: ...

    @app.task
    async def known() -> None: ...

    async with newer:
        handle = await from_the_future.enqueue()
    jobs = await app.jobs()
    delays = []
    for _ in range(4):
        await burst(app)
        job = await jobs.get(handle.id)
        assert (job.status, job.attempts) == (Status.PENDING, 0)
        assert job.started_at is not None
        delays.append((job.run_at - job.started_at).total_seconds())
        await harness.age(delays[-1] + 100)

    first, second, *rest = delays
    assert 1.0 <= first < 20.0
    assert 100.0 < second < 150.0
    assert rest == pytest.approx([300.0, 300.0], abs=1.0)


async def test_follow_ups_run_after_their_parent(app: Unstuck) -> None:
    order: list[str] = []

    @app.task
    async def second(name: str) -> None:
        order.append(f"{name} after {current_job().job.parent}")

    @app.task
    async def first() -> None:
        order.append("first")
        current_job().then(second.call("second"))

    handle = await first.enqueue()
    await burst(app)

    assert order == ["first", f"second after {handle.id}"]


@pytest.mark.accepts("MQ-040", "MQ-042")
async def test_progress_is_seen_while_the_job_runs(app: Unstuck) -> None:
    go_on = asyncio.Event()

    @app.task(heartbeat=0.05, lease=60.0)
    async def slow() -> None:
        current_job().progress(0.5)
        current_job().stage("half way")
        await go_on.wait()

    handle = await slow.enqueue()
    running = asyncio.create_task(burst(app))

    async def half() -> bool:
        job = await handle.job()
        return (job.status, job.progress, job.stage) == (Status.PROCESSING, 0.5, "half way")

    await until_async(half, 10, "progress in the store")
    go_on.set()
    await running
    done = await handle.job()
    assert (done.status, done.progress) == (Status.COMPLETED, 0.5)


async def test_cancelling_a_running_job_stops_its_handler(app: Unstuck) -> None:
    stopped = asyncio.Event()

    @app.task(heartbeat=0.05, lease=60.0)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = await endless.enqueue()
    running = asyncio.create_task(burst(app))

    async def processing() -> bool:
        return await handle.status() is Status.PROCESSING

    await until_async(processing, 10, "the job to run")
    assert await handle.cancel() is True
    async with asyncio.timeout(10):
        await stopped.wait()
        await running
    assert (await handle.job()).cancelled


async def test_a_group_of_errors_counts_as_its_worst(app: Unstuck) -> None:
    @app.task(retry=5)
    async def grouped() -> None:
        raise ExceptionGroup("several", [ConnectionResetError("may pass"), Permanent("will not")])

    handle = await grouped.enqueue()
    await burst(app)

    job = await handle.job()
    assert (job.status, job.attempts) == (Status.FAILED, 1)


@pytest.mark.slow
async def test_a_worker_can_be_asked_for_its_health_before_it_runs(app: Unstuck) -> None:
    """get_health_status() is public: it answers before run() has made anything."""

    @app.task
    async def job() -> None: ...

    assert Worker(app).get_health_status().status == "HEALTHY"
