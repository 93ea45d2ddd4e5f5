"""What is easily got wrong in an application's code is told where it is said, with what would be right."""

import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import Category, ConfigError, QuotaExhausted, Unstuck, Worker, register
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


class Mine(Exception):
    pass


anything: Any = Unstuck("sqlite:///:memory:")
MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: send.options(delay=400 * 366 * 86400), "delay is 12648960000: it must be a number from 0 to 316224000 (seconds)"),
    (lambda: send.options(delay=5, run_at=WHEN), "delay and run_at both say when: give one of them"),
    (lambda: anything.task(retries=3)(one_by_one), "task 'one_by_one' has no option 'retries': it takes lease, heartbeat, "),
    (lambda: anything.queue("mail", limits=3), "queue 'mail' has no option 'limits': it takes lease, heartbeat, "),
    (lambda: anything.task(yields), "task 'yields' yields, and a job has one result: return it"),
    (lambda: anything.batch(5)(one_by_one), "batch task 'one_by_one' takes a str: it must take a list of what jobs carry, for example list[str]"),
    (lambda: Worker(app, queues="default"), "queues is 'default': it must be a list of names, for example ['default']"),
    (lambda: anything.enqueue_many_sync([send.call("ann"), send]), "<unstuck.task.Task object at "),
    (lambda: register(Mine, "PERMANENT"), "rule is 'PERMANENT': it must be Category.TRANSIENT, Category.PERMANENT, Category.CRITICAL or"),  # type: ignore[arg-type]
    (lambda: register(Mine(), Category.PERMANENT), "'' is no exception class: name a class, not one of its instances"),  # type: ignore[arg-type]
    (lambda: Unstuck("sqlite:/jobs.db"), "store 'sqlite:/jobs.db' names no file: use sqlite:///file.db or sqlite:////full/path/file.db"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_mistake_is_told_where_it_is_made(mistake: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mistake()

    assert str(caught.value).startswith(told)
    assert (anything.tasks, anything.queues) == ({}, {})


class Refused(Exception):
    response = SimpleNamespace(status_code=429, headers={"retry-after": "60"})


@pytest.mark.parametrize(
    ("error", "line"),
    [(Refused("slow down"), "rate limited for 60.0 s"), (QuotaExhausted("pay"), "queue default is paused")],
    ids=["rate", "quota"],
)
async def test_a_batch_that_is_refused_is_told_once(
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
