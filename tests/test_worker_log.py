"""The line a worker logs about an attempt that failed, with what its handler bound."""

import logging

import pytest
from support.work import burst

from unstuck import Permanent, Unstuck, Worker, current_job

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-066", "EMB-091", "EMB-092")
@pytest.mark.parametrize("kind", ["async", "thread", "batch"])
async def test_a_permanent_error_is_told_with_what_its_handler_bound(
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
