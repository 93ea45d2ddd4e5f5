"""Middleware of one task, and what an application runs around enqueueing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.refusal import refusal
from support.work import burst

from unstuck import Call, Permanent, Status, Unstuck, UnstuckError
from unstuck.app.context import Context
from unstuck.app.hooks import Middleware
from unstuck.testing import inline

pytestmark = pytest.mark.anyio
Next = Callable[[], Awaitable[Any]]


def noting(order: list[str], name: str) -> Middleware:
    async def around(job: Context, call_next: Next) -> Any:
        order.append(f"{name} around {job.job.task}")
        return f"{name}({await call_next()})"

    return around


def plain() -> str:
    return "done"


def alone() -> str:
    return "alone"


async def test_the_middleware_of_a_task_runs_around_it_alone_inside_of_the_apps(app: Unstuck) -> None:
    order: list[str] = []
    app.middleware(noting(order, "app"))
    own = [noting(order, "first"), noting(order, "second")]
    kinds = [
        app.task(name="thread", middleware=own)(plain),
        app.task(name="process", isolate=True, middleware=own)(alone),
        app.task(name="without")(plain),
    ]

    for task in kinds:
        await task.enqueue()
        await burst(app)

    assert order == [
        "app around thread", "first around thread", "second around thread",
        "app around process", "first around process", "second around process",
        "app around without",
    ]  # fmt: skip


async def test_a_task_with_middleware_needs_none_of_the_app(app: Unstuck) -> None:
    async def refuse(job: Context, call_next: Next) -> Any:
        if job.job.payload["texts"] == "bad":
            raise Permanent("refused")
        return [text.upper() for text in await call_next()]

    @app.batch(1, middleware=[refuse])
    async def embed(texts: list[str]) -> list[str]:
        return texts

    good, bad = await embed.enqueue("good"), await embed.enqueue("bad")
    await burst(app)

    assert (await good.result(timeout=0), await bad.status()) == ("GOOD", Status.FAILED)


async def test_middleware_is_a_list_of_functions(app: Unstuck) -> None:
    wrong: Any = app

    for given in (noting([], "one"), ["name"], "name"):
        told = refusal(lambda given=given: wrong.task(middleware=given)(plain))
        assert told.startswith("middleware of task 'plain' is ")
        assert told.endswith("it must be a list of functions, each as for @app.middleware")
    assert app.tasks == {}


async def test_every_way_to_enqueue_is_inside_of_what_the_application_runs_around_it(
    app: Unstuck,
) -> None:
    seen: list[str] = []
    task = app.task(plain)

    for name in ("outer", "inner"):

        @app.around_enqueue
        @contextmanager
        def around(calls: Sequence[Call[Any]], name: str = name) -> Iterator[None]:
            seen.append(f"{name} {[call.job.task for call in calls]}")
            yield
            seen.append(f"{name} stored")

    async with inline(app):
        for enqueue in (
            task.enqueue,
            lambda: app.enqueue_many([task.call(), task.call()]),
            lambda: app.send("other", {}, queue="elsewhere"),
            lambda: app.enqueue_in(object(), [task.call()]),
        ):
            await enqueue()
    one, two, other = ["plain"], ["plain"] * 2, ["other"]
    assert seen == [
        each
        for names in (one, two, other, one)
        for each in (f"outer {names}", f"inner {names}", "inner stored", "outer stored")
    ]


def test_callers_without_an_event_loop_are_inside_of_it_too(tmp_path: Path) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")
    many: list[int] = []

    @app.around_enqueue
    @contextmanager
    def counted(calls: Sequence[Call[Any]]) -> Iterator[None]:
        yield
        many.append(len(calls))

    task = app.task(plain)
    task.enqueue_sync()
    app.send_sync("other", {}, queue="elsewhere")
    with inline(app):
        app.enqueue_in_sync(object(), [task.call(), task.call()])

    assert many == [1, 1, 2]


async def test_what_it_raises_refuses_the_jobs(app: Unstuck) -> None:
    @app.around_enqueue
    @contextmanager
    def bounded(calls: Sequence[Call[Any]]) -> Iterator[None]:
        if len(calls) > 1:
            raise ValueError("too many")
        yield

    task = app.task(plain)
    with pytest.raises(ValueError, match="too many"):
        await app.enqueue_many([task.call(), task.call()])
    await task.enqueue()

    assert (await (await app.jobs()).get_queue_status())["pending"] == 1


async def test_one_that_swallows_errors_is_an_error_itself(app: Unstuck) -> None:
    @app.around_enqueue
    @contextmanager
    def careless(calls: Sequence[Call[Any]]) -> Iterator[None]:
        with suppress(Exception):
            yield

    @app.around_enqueue
    @contextmanager
    def refusing(calls: Sequence[Call[Any]]) -> Iterator[None]:
        raise ValueError("no")
        yield

    with pytest.raises(
        UnstuckError, match="an around_enqueue swallowed an error, so that there are no handles"
    ):
        await app.task(plain).enqueue()


async def test_it_must_be_a_context_manager(app: Unstuck) -> None:
    def yields(calls: Sequence[Call[Any]]) -> Iterator[None]:
        yield

    async def yields_too(calls: Sequence[Call[Any]]) -> AsyncIterator[None]:
        yield

    wrong: Any = app
    for function in (yields, yields_too):
        assert "is not a context manager: write a def that yields once, under @app.around_enqueue" in refusal(
            lambda function=function: wrong.around_enqueue(function)
        )
    assert refusal(lambda: wrong.around_enqueue(suppress(ValueError))).endswith(
        "give the function itself, without calling it"
    )
