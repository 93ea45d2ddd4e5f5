"""What a worker logs: of attempts that failed, with what their handlers bound, and of how it fares."""

import logging
from datetime import UTC, datetime

import pytest
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import JobFailed, Permanent, Unstuck, Worker, current_job

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-066", "EMB-091", "EMB-092")
@pytest.mark.parametrize("kind", ["async", "thread", "batch"])
async def test_a_permanent_error_is_reported_with_what_its_handler_bound(
    app: Unstuck, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        current_job().bind(entityName="Ada Lovelace", operation="embed", password="hunter2")
        raise Permanent("there is no such entity")

    @app.task(name="async")
    async def on_loop() -> None:
        fail()

    @app.task(name="thread")
    def in_thread() -> None:
        fail()

    @app.batch(size=3, name="batch")
    async def together(items: list[int]) -> list[int]:
        fail()
        return items

    handle = await {"async": on_loop.enqueue, "thread": in_thread.enqueue}.get(
        kind, lambda: together.enqueue(1)
    )()
    worker = Worker(app, burst=True)
    await worker.run()

    [told] = [vars(record) for record in caplog.records if "errorType" in vars(record)]
    assert (told["jobId"], told["entityName"], told["operation"]) == (handle.id, "Ada Lovelace", "embed")
    assert (told["errorType"], told["error"]) == ("PERMANENT", "there is no such entity")
    assert (told["attempt"], told["maxAttempts"], told["workerId"]) == (1, 3, worker.id)
    assert "in fail" in told["stack"]
    assert told["levelno"] == logging.ERROR
    assert "hunter2" not in str(told)


async def test_a_retry_is_a_warning_with_the_count_of_attempts(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def flaky() -> None:
        raise TimeoutError("no answer")

    await flaky.enqueue()
    await burst(app)

    [told] = [record for record in caplog.records if "errorType" in vars(record)]
    assert (told.levelno, vars(told)["errorType"], vars(told)["code"]) == (
        logging.WARNING, "TRANSIENT", "timeout",
    )  # fmt: skip
    assert (vars(told)["attempt"], vars(told)["maxAttempts"]) == (1, 3)


@pytest.mark.accepts("EMB-084", "EMB-085", "EMB-086")
async def test_a_worker_that_succeeds_after_three_failures_counts_from_zero_and_logs_it(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work(fine: bool) -> None:
        if not fine:
            raise Permanent("it is not")

    caplog.set_level(logging.INFO, "unstuck.health")
    worker = Worker(app)
    await app.enqueue_many([work.call(fine=False) for _ in range(3)])
    assert await worker.process_jobs(3) == 3
    assert worker.get_health_status().consecutive_failures == 3
    assert not [record for record in caplog.records if record.name == "unstuck.health"]

    await work.enqueue(fine=True)
    assert await worker.process_jobs(1) == 1

    health = worker.get_health_status()
    assert (health.status, health.consecutive_failures) == ("HEALTHY", 0)
    [told] = [record for record in caplog.records if record.name == "unstuck.health"]
    assert told.getMessage() == "recovered: a job succeeded after 3 failures in a row"


@pytest.mark.accepts("EMB-155")
async def test_a_worker_reports_what_it_did_under_its_id(
    app: Unstuck, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work(fine: bool) -> None:
        if not fine:
            raise Permanent("it is not")

    monkeypatch.setattr("unstuck.operations.health.REPORT_EVERY", 0.0)
    caplog.set_level(logging.INFO, "unstuck.health")
    worker = Worker(app)
    await app.enqueue_many([work.call(fine=fine) for fine in (True, True, False)])
    await worker.process_jobs(3)

    told = [vars(record) for record in caplog.records if "succeeded" in vars(record)]
    assert {facts["workerId"] for facts in told} == {worker.id}
    assert (sum(facts["succeeded"] for facts in told), sum(facts["failed"] for facts in told)) == (2, 1)


@pytest.mark.accepts("EMB-080", "EMB-088", "EMB-089")
async def test_the_status_reports_how_many_failed_and_of_what_and_when_one_succeeded_last(
    app: Unstuck,
) -> None:
    @app.task(retry=1)
    async def work(how: str) -> None:
        if how == "late":
            raise TimeoutError("no answer")
        if how == "gone":
            raise ConnectionResetError("gone")

    jobs = await app.jobs()
    before = datetime.now(UTC)
    async with at_work(app, concurrency=1) as worker:
        await work.enqueue("fine")
        await until_async(lambda: worker.get_health_status().successes == 1, 10, "the success to be counted")
        between = datetime.now(UTC)
        handles = [await work.enqueue(how) for how in ("late", "gone", "late", "late", "gone")]
        for handle in handles:
            with pytest.raises(JobFailed):
                await handle.result(10)
        await worker._heartbeat.confirm()
        for status in (worker.get_health_status(), await jobs.get_health_status()):
            assert (status.status, status.consecutive_failures) == ("DEGRADED", 5)
            assert status.last_success is not None
            assert before <= status.last_success <= between
            assert status.patterns == {"timeout": 3, "ConnectionResetError": 2}
        assert (await jobs.get_health_status()).success_rate == pytest.approx(1 / 6)
        health = worker.get_health_status()
        assert (health.successes, health.failures) == (1, 5)
