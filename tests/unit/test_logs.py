"""Logs: one JSON object a line, whatever is said in them."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.work import burst

from unstuck import Category, Job, Status, Unstuck, current_job
from unstuck.protocol.classify import failure
from unstuck.protocol.job import Lease
from unstuck.protocol.outcome import Outcome, completed, failed, retried
from unstuck.recovery.reports import log_failure
from unstuck.text.logs import JsonLines

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
JOB = Job(
    queue="embed",
    id="j1",
    task="embed_entity",
    status=Status.PROCESSING,
    created_at=NOW,
    run_at=NOW,
    attempts=2,
    max_attempts=3,
    fence=7,
)
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the logs of the engine look like from outside."""
    stream, logger = io.StringIO(), logging.getLogger("unstuck")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


def ended(kind: Category = Category.PERMANENT, *, again: bool = False) -> Outcome:
    try:
        raise ValueError("entity 'Ann' has no text; password=hunter2")
    except ValueError as error:
        told = failure(error, attempt=2, worker="w1")
    why = type(told)(category=kind, code=told.code, message=told.message, stack=told.stack)
    return retried(JOB.lease, why, 2.0) if again else failed(JOB.lease, why)


def told(lines: Lines, outcome: Outcome, **facts: Any) -> dict[str, Any]:
    log_failure(JOB, outcome, worker="w1", facts=facts)
    [line] = lines()
    return line


def test_a_failed_job_is_reported_with_its_context(lines: Lines) -> None:
    line = told(lines, ended())

    assert (line["jobId"], line["queue"], line["task"]) == ("j1", "embed", "embed_entity")
    assert (line["attempt"], line["maxAttempts"], line["code"]) == (2, 3, "ValueError")


def test_a_permanent_error_names_entity_type_and_operation(lines: Lines) -> None:
    line = told(lines, ended(), entityName="Ann", operation="generate_embedding")

    assert (line["entityName"], line["errorType"], line["operation"]) == (
        "Ann",
        "PERMANENT",
        "generate_embedding",
    )
    assert line["level"] == "ERROR"


def test_without_a_word_of_the_handler_the_operation_is_the_task(lines: Lines) -> None:
    line = told(lines, ended())

    assert line["operation"] == "embed_entity"
    assert "entityName" not in line
    assert "facts" not in line


@pytest.mark.parametrize("kind", list(Category))
def test_the_error_type_is_one_of_three_words(lines: Lines, kind: Category) -> None:
    assert told(lines, ended(kind))["errorType"] == str(kind)


def test_message_stack_time_and_worker_are_logged(lines: Lines) -> None:
    line = told(lines, ended())

    assert "entity 'Ann' has no text" in line["message"]
    assert "Traceback" in line["stack"]
    assert "ValueError" in line["stack"]
    assert line["workerId"] == "w1"
    assert datetime.fromisoformat(line["timestamp"]).utcoffset() is not None
    assert "hunter2" not in json.dumps(line)


def test_a_critical_error_is_logged_as_critical(lines: Lines) -> None:
    assert told(lines, ended(Category.CRITICAL))["level"] == "CRITICAL"


def test_a_retry_is_a_warning_and_gives_the_time(lines: Lines) -> None:
    line = told(lines, ended(Category.TRANSIENT, again=True))

    assert line["level"] == "WARNING"
    assert "will be tried again in 2.0 s" in line["message"]


def test_the_last_transient_failure_is_an_error(lines: Lines) -> None:
    assert told(lines, ended(Category.TRANSIENT))["level"] == "ERROR"


def test_nothing_is_logged_about_a_job_that_succeeded(lines: Lines) -> None:
    log_failure(JOB, completed(Lease("embed", "j1", 7)), worker="w1", facts={})

    assert lines() == []


def test_observations_are_cut_in_number_and_length(lines: Lines) -> None:
    line = told(lines, ended(), observations=["x" * 5000] * 30, model="m-small")

    observations = line["facts"]["observations"]
    assert len(observations) == 10
    assert {len(text) for text in observations} == {200}
    assert line["facts"]["model"] == "m-small"


def test_secrets_do_not_pass_as_facts(lines: Lines) -> None:
    line = told(
        lines,
        ended(),
        api_key=12345,
        request={"authorization": "Basic dXNlcjpwYXNz", "url": "https://u:hunter2@host/"},
        texts=["token=hunter2", {"deeper": {"password": "hunter2"}}],
    )

    shown = json.dumps(line["facts"])
    assert not any(secret in shown for secret in ("12345", "dXNlcjpwYXNz", "hunter2"))
    assert "https://u:" in shown


def test_facts_cannot_pass_for_what_the_engine_logs(lines: Lines) -> None:
    names = ["jobId", "level", "message", "name", "args", "msg", "exc_info", "timestamp", "workerId", "stack"]

    line = told(lines, ended(), **dict.fromkeys(names, "forged"))

    assert (line["jobId"], line["level"], line["workerId"]) == ("j1", "ERROR", "w1")
    assert line["facts"]["message"] == "forged"


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.accepts("EMB-097")
@pytest.mark.parametrize(
    "value",
    [
        Strange(),
        endless(),
        {(1, Strange()): 1},
        {Strange(): 1},
        "\ud800 lone \n second line",
        float("nan"),
        2**200,
        b"\xff",
        {1, 2},
        NOW,
        [[[[[1]]]]],
        {"a": "b" * 100_000},
        range(10**9),
        NotImplemented,
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_handler_bound_the_line_is_one_json_object(lines: Lines, value: Any) -> None:
    line = told(lines, ended(), value=value)
    logging.getLogger("unstuck.test").error("also said beside", extra={"value": value})

    assert "value" in line["facts"]
    assert len(json.dumps(line["facts"])) < 3000
    assert [line["message"] for line in lines()][1:] == ["also said beside"]


def test_many_facts_are_cut(lines: Lines) -> None:
    assert len(told(lines, ended(), **{f"fact{number}": number for number in range(1000)})["facts"]) == 20


def test_a_log_call_with_the_wrong_arguments_is_still_a_line() -> None:
    record = logging.makeLogRecord({"msg": "%d jobs", "args": ("many",)})

    assert json.loads(JsonLines().format(record))["message"] == "%d jobs"


def test_an_extra_cannot_forge_level_and_time(lines: Lines) -> None:
    logging.getLogger("unstuck.test").error("x", extra={"level": "INFO", "timestamp": 0, "logger": "forged"})

    [line] = lines()
    assert (line["level"], line["logger"]) == ("ERROR", "unstuck.test")
    assert line["timestamp"] != 0


def test_what_the_engine_logs_is_not_cut_short(lines: Lines) -> None:
    ids = [f"job-{number}" for number in range(200)]
    logging.getLogger("unstuck.test").warning("recovered", extra={"jobIds": ids})

    assert lines()[0]["jobIds"] == ids


@pytest.mark.anyio
async def test_a_handler_may_log_facts_of_any_name(lines: Lines, app: Unstuck) -> None:
    @app.task
    async def speak() -> None:
        current_job().log("100% done", args=1, name="x", jobId="forged", password="hunter2")

    handle = await speak.enqueue()
    await burst(app)

    assert await handle.status() is Status.COMPLETED
    [line] = [line for line in lines() if line["message"] == "100% done"]
    assert line["jobId"] == handle.id
    assert line["facts"] == {"args": 1, "name": "x", "jobId": "forged", "password": "[redacted]"}


def test_a_warning_is_a_json_line_too() -> None:
    code = (
        "import warnings; from unstuck.text.logs import log_json; log_json(); warnings.warn('mind the gap')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    [line] = map(json.loads, ran.stderr.splitlines())
    assert (line["level"], line["logger"]) == ("WARNING", "py.warnings")
    assert "mind the gap" in line["message"]
