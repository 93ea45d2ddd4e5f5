"""What is easily got wrong in an application's code is told where it is said, with what would be right."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import (
    Category,
    ConfigError,
    PayloadError,
    Policy,
    QuotaExhausted,
    Rate,
    Retry,
    Unstuck,
    UnstuckError,
    Worker,
    current_job,
    register,
)
from unstuck.config.policy import must_agree
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts

pytestmark = pytest.mark.anyio
WHEN = datetime(2027, 1, 31, tzinfo=UTC)
app = Unstuck("sqlite:///:memory:")


@app.task
def send(to: str) -> None: ...


async def yields() -> AsyncIterator[int]:
    yield 1


async def one_by_one(text: str) -> list[str]:
    return [text]


async def texted(texts: list[str]) -> str:
    return "".join(texts)


async def unanswered(texts: list[str]) -> None: ...


class Mailer:
    def post(self, to: str) -> None: ...


async def yielding() -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def pooled() -> AsyncIterator[None]:
    yield


class Mine(Exception):
    pass


anything: Any = Unstuck("sqlite:///:memory:")
MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: send.options(delay=400 * 366 * 86400), "delay is 12648960000: it must be a number from 0 to 316224000 (seconds: ten years)"),
    (lambda: send.options(delay=5, run_at=WHEN), "delay and run_at both set the time: give one of them"),
    (lambda: anything.task(retries=3)(one_by_one), "task 'one_by_one' has no option 'retries': it takes lease, heartbeat, "),
    (lambda: anything.queue("mail", limits=3), "queue 'mail' has no option 'limits': it takes lease, heartbeat, "),
    (lambda: anything.task(yields), "task 'yields' yields, and a job has one result: return it"),
    (lambda: anything.batch(5)(one_by_one), "batch task 'one_by_one' takes a str: it must take a list of what jobs carry, for example list[str]"),
    (lambda: anything.batch(5)(texted), "batch task 'texted' returns a str: it must return a list with one answer for each job"),
    (lambda: anything.batch(5)(unanswered), "batch task 'unanswered' returns None: it must return a list with one answer for each job"),
    (lambda: anything.task(Mailer), "task 'Mailer' is a class: make a task of a function, which may use the class"),
    (lambda: anything.task(Mailer.post), "task 'post' is a method, and a job has no self: make a task of a function outside of the class"),
    (lambda: anything.batch(one_by_one), "@app.batch has no size: write @app.batch(50)"),
    (lambda: anything.lifespan(yielding), "lifespan 'yielding' yields and is not an asynchronous context manager: write an async def that yields once, under @app.lifespan and @asynccontextmanager"),
    (lambda: anything.lifespan(one_by_one), "lifespan 'one_by_one' is not an asynchronous context manager: write"),
    (lambda: anything.lifespan(pooled()), "lifespan is <contextlib._AsyncGeneratorContextManager"),
    (lambda: anything.enqueue_many_sync(send.call("ann")), "a single call is not a list of calls: write [task.call(…)]"),
    (lambda: anything.job_sync(None), "job id is None: it must be a text, such as handle.id"),
    (lambda: app.job_sync(uuid4()), "job id is UUID('"),  # type: ignore[arg-type]
    (lambda: send.enqueue_sync("ann").result(timeout="1"), "timeout is '1': it must be a number from 0 to 316224000 (seconds)"),  # type: ignore[arg-type]
    (lambda: send.enqueue_sync("ann").result(timeout=-1), "timeout is -1: it must be a number from 0 to"),
    (lambda: Worker(app, queues="default"), "queues is 'default': it must be a list of names, for example ['default']"),
    (lambda: anything.enqueue_many_sync([send.call("ann"), send]), "Task('send', queue='default') is not a call: give a task.call(…)"),
    (lambda: register(Mine, "PERMANENT"), "rule is 'PERMANENT': it must be Category.TRANSIENT, Category.PERMANENT, Category.CRITICAL or"),  # type: ignore[arg-type]
    (lambda: register(Mine(), Category.PERMANENT), "Mine() is not an exception class: name a class, not one of its instances"),  # type: ignore[arg-type]
    (lambda: register(int, Category.PERMANENT), "<class 'int'> is not an exception class: name a class, not one of its instances"),  # type: ignore[arg-type]
    (lambda: Unstuck("sqlite:/jobs.db"), "store 'sqlite:/jobs.db' names no file: use sqlite:///file.db or sqlite:////full/path/file.db"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_mistake_is_reported_where_it_is_made(
    mistake: Callable[[], object], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (app, anything):
        monkeypatch.setattr(each, "url", f"sqlite:///{tmp_path}/jobs.db")

    with pytest.raises(ConfigError) as caught:
        mistake()

    assert str(caught.value).startswith(told)
    assert (anything.tasks, anything.queues) == ({}, {})


def test_a_lifespan_is_a_function_that_returns_an_asynchronous_context_manager_or_a_class_of_these() -> None:
    app = Unstuck("sqlite:///:memory:")

    class Pool:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

    assert (app.lifespan(pooled), app.lifespan(Pool)) == (pooled, Pool)
    assert app.lifespans == [pooled, Pool]


def test_a_bound_method_can_be_a_task() -> None:
    assert Unstuck("sqlite:///:memory:").task(Mailer().post).name == "post"


def test_two_rates_of_one_bucket_are_refused_with_both_named() -> None:
    app = Unstuck("sqlite:///:memory:")
    app.queue("a", rate=Rate(5, per=1, bucket="b"))
    app.queue("b", rate=Rate(5, per=1))
    told = "bucket 'b' has 5 per 1 s in queue 'a' and 9 per 1 s in queue 'c': make them agree"

    with pytest.raises(ConfigError, match=told):
        app.queue("c", rate=Rate(9, per=1, bucket="b"))
    with pytest.raises(ConfigError, match=told):
        app.task(queue="c", rate=Rate(9, per=1, bucket="b"))(one_by_one)

    assert (list(app.queues), app.tasks) == (["a", "b"], {})
    app.task(queue="c", rate=Rate(9, per=1, bucket="d"))(one_by_one)


def test_jobs_are_kept_for_ever_by_the_word_that_a_file_has_for_it() -> None:
    app = Unstuck("sqlite:///:memory:")
    app.queue("q", retention="forever")

    assert app.queues["q"].retention is None


def test_an_argument_that_is_missing_and_one_that_is_misspelt_are_both_reported() -> None:
    with pytest.raises(
        PayloadError, match=r"missing a required argument: 'to', and there is no 'too'; it takes"
    ):
        send.enqueue_sync(too="ann")  # type: ignore[call-arg]
    with pytest.raises(PayloadError, match=r"unexpected keyword argument 'too'; it takes"):
        send.enqueue_sync("ann", too="bob")  # type: ignore[call-arg]


def test_the_error_of_a_handler_that_is_called_directly_names_how_to_test_it() -> None:
    with pytest.raises(UnstuckError, match=r"no job runs here: .*; in a test, unstuck\.testing\.inline runs"):
        current_job()


class Refused(Exception):
    response = SimpleNamespace(status_code=429, headers={"retry-after": "60"})


@pytest.mark.parametrize(
    ("error", "line"),
    [(Refused("slow down"), "rate limited for 60.0 s"), (QuotaExhausted("pay"), "queue default is paused")],
    ids=["rate", "quota"],
)
async def test_a_batch_that_is_refused_is_reported_once(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    calls: list[int] = []

    @app.batch(50)
    async def embed(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        raise error

    await app.enqueue_many([embed.call(f"text {n}") for n in range(30)])
    with caplog.at_level(logging.WARNING, "unstuck.worker"):
        async with at_work(app):
            await until_async(lambda: line in caplog.text, 30, "the refusal")

    told = [record.message for record in caplog.records if line in record.message]
    assert (len(told), calls) == (1, [30])
    assert (await counts(harness.store, "default")).pending == 30


def test_what_is_not_set_for_retries_and_rates_is_the_default_of_the_docs() -> None:
    assert (Retry().attempts, Retry().backoff, Rate(1).per) == (3, (1.0, 2.0, 4.0), 60.0)


def test_a_queue_without_a_rate_does_not_hide_two_that_disagree() -> None:
    rates = [None, Rate(5, per=1, bucket="b"), None, Rate(9, per=1, bucket="b")]
    with pytest.raises(
        ConfigError, match="bucket 'b' has 5 per 1 s in queue 'q1' and 9 per 1 s in queue 'q3'"
    ):
        must_agree({f"q{number}": Policy(rate=rate) for number, rate in enumerate(rates)})


@pytest.mark.parametrize("concurrency", [0, 10_001, 1.5, True])
def test_a_worker_runs_from_one_to_ten_thousand_jobs_at_a_time(concurrency: Any) -> None:
    app = Unstuck("sqlite:///:memory:")
    app.queue("default")
    Worker(app, concurrency=10_000)
    told = rf"concurrency is {concurrency}: it must be a whole number from 1 to 10000"
    with pytest.raises(ConfigError, match=told):
        Worker(app, concurrency=concurrency)
