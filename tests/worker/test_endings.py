"""Whatever code of yours raises between a lease and its outcome, the job ends in an outcome, and its worker goes on."""

import asyncio
import concurrent.futures
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Category, Context, Job, Snooze, Status, Task, Unstuck, register
from unstuck.worker.slots import Slots

pytestmark = pytest.mark.anyio

KINDS = [
    "loop",
    "loop with a timeout",
    "thread",
    "thread with a timeout",
    "isolated",
    "batch",
    "batch of one",
]
strict = False  # here; in a process of an isolated job models are strict from the beginning


class Panic(BaseException):
    """No Exception, as pyo3_runtime.PanicException is none, which pydantic-core, polars, orjson … raise."""


class Unreadable(Exception):
    def __str__(self) -> str:
        raise Panic("even its text")


class Unruly(Exception):
    """A rule for it raises."""


class OddSnooze(Snooze):
    def __init__(self) -> None:
        Exception.__init__(self)

    @property
    def seconds(self) -> float:  # type: ignore[override]
        raise Panic("even its length")


def _panics(_: BaseException) -> Category:
    raise Panic("the rule")


register(Unruly, _panics)


@dataclass
class Order:
    what: str

    def __post_init__(self) -> None:
        if not strict and "unstuck.worker.isolation.forkserver" not in sys.orig_argv:
            return
        if self.what == "a model that panics":
            raise Panic("a model")
        if self.what == "a model that exits":
            sys.exit("a model")


class Model:
    """As a pydantic model."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def model_dump(self, mode: str) -> None:
        raise self._error


def act(what: str) -> Any:
    match what:
        case "a result that panics":
            return Model(Panic("cannot be written"))
        case "a result that exits":
            return Model(SystemExit("cannot be written"))
        case "a result that cannot even be reported":
            return Model(Unreadable())
        case "exit":
            sys.exit(0)
        case "panic":
            raise Panic("odd")
        case "unreadable":
            raise Unreadable
        case "rule":
            raise Unruly
        case "snooze":
            raise OddSnooze
        case "cancelled":
            raise asyncio.CancelledError
        case "cancelled in an executor":
            raise concurrent.futures.CancelledError
    return what


async def on_loop(order: Order) -> Any:
    await asyncio.sleep(0)
    if order.what == "cancelled":  # as most come: by something that was waited for
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
    return act(order.what)


def in_thread(order: Order) -> Any:
    return act(order.what)


def in_child(order: Order) -> Any:
    return act(order.what)


async def together(orders: list[Order]) -> list[Any]:
    return [await on_loop(order) for order in orders]


def task(app: Unstuck, kind: str) -> "Task[Any, Any]":
    timeout = 60.0 if "timeout" in kind else None
    if kind.startswith("batch"):
        return app.batch(5, name="odd", retry=1)(together)
    function: Callable[..., Any] = {"loop": on_loop, "thread": in_thread}.get(
        kind.split(maxsplit=1)[0], in_child
    )
    return app.task(name="odd", retry=1, timeout=timeout, isolate=kind == "isolated")(function)


async def failed(app: Unstuck, kind: str, what: str, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The failed jobs of a burst in which one (a batch: two) meet this; a neighbour of another task has to be fine."""

    @app.task
    async def fine() -> str:
        return "fine"

    odd = task(app, kind)
    handles = await app.enqueue_many([odd.call(Order(what)) for _ in range(2 if kind == "batch" else 1)])
    neighbour = await fine.enqueue()
    monkeypatch.setattr(sys.modules[__name__], "strict", True)
    async with asyncio.timeout(60):
        await burst(app)

    assert await neighbour.result() == "fine"
    jobs = [await handle.job() for handle in handles]
    assert {(job.status, job.attempts, job.crashes) for job in jobs} == {(Status.FAILED, 1, 0)}
    return jobs


def codes(jobs: list[Job]) -> set[tuple[str, str]]:
    return {(job.error.category, job.error.code) for job in jobs if job.error}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["a model that panics", "a model that exits"])
async def test_a_model_that_raises_what_is_no_exception_fails_its_job(
    app: Unstuck, kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert codes(await failed(app, kind, what, monkeypatch)) == {("PERMANENT", "invalid_payload")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "what", ["a result that panics", "a result that exits", "a result that cannot even be reported"]
)
async def test_a_result_that_raises_when_it_is_written_fails_its_job(
    app: Unstuck, kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert codes(await failed(app, kind, what, monkeypatch)) == {("PERMANENT", "invalid_result")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("what", "code"),
    [("exit", "SystemExit"), ("panic", "Panic"), ("unreadable", "Unreadable"), ("rule", "Unruly")],
)
async def test_what_a_handler_raises_has_the_same_code_wherever_it_runs(
    app: Unstuck, kind: str, what: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert codes(await failed(app, kind, what, monkeypatch)) == {("TRANSIENT", code)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["cancelled", "cancelled in an executor"])
async def test_a_cancellation_that_is_not_the_workers_is_transient_wherever_it_comes_from(
    app: Unstuck, kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await failed(app, kind, what, monkeypatch)

    assert codes(jobs) == {("TRANSIENT", "CancelledError")}
    assert {job.error.message for job in jobs if job.error} == {
        "something that the handler waited for was cancelled, but not its job"
    }


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "isolated"])
async def test_an_error_that_raises_when_it_is_judged_fails_its_job(
    app: Unstuck, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert codes(await failed(app, kind, "snooze", monkeypatch)) == {("TRANSIENT", "Panic")}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_middleware_that_exits_fails_the_job(
    app: Unstuck, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.middleware
    async def leave(job: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        result = await call_next()
        if job.job.task == "odd":
            sys.exit(1)
        return result

    assert codes(await failed(app, kind, "", monkeypatch)) == {("TRANSIENT", "SystemExit")}


async def test_a_log_handler_that_raises_costs_no_job_its_outcome(app: Unstuck) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "could not be carried through" in record.getMessage() or "failed" in record.getMessage():
                raise Panic("the log")

    @app.task(retry=1)
    async def wrong() -> None:
        raise ValueError("as usual")

    handle = await wrong.enqueue()
    broken = Broken()
    logging.getLogger("unstuck.worker").addHandler(broken)
    try:
        async with asyncio.timeout(30):
            await burst(app)
    finally:
        logging.getLogger("unstuck.worker").removeHandler(broken)

    assert await handle.status() is Status.FAILED


async def test_a_lease_that_nobody_works_on_is_not_renewed(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever hole there may be: its job is recovered like one of a worker that died."""

    def forget(slots: Slots, *_: object) -> None:
        slots.running -= 1
        monkeypatch.undo()

    @app.task(lease=2.0, heartbeat=0.3)
    async def odd() -> str:
        return "done"

    handle = await odd.enqueue()
    monkeypatch.setattr(Slots, "_ended", forget)
    async with at_work(app, recovery=1):
        await until_async(lambda: "without an outcome" in caplog.text, 20, "the worker to notice")

        async def completed() -> bool:
            return await handle.status() is Status.COMPLETED

        await until_async(completed, 30, "its recovery")
    job = await handle.job()
    assert (job.attempts, job.crashes) == (2, 1)
