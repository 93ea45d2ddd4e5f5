"""Dependencies of handlers whose jobs fail, are cancelled, run out of time, or run in a process of their own."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import depends_app
import pytest
from support.dependencies import Book
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import (
    Depends,
    JobFailed,
    Permanent,
    Status,
    Unstuck,
    Worker,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def book() -> Book:
    return Book()


async def test_a_job_that_is_cancelled_does_not_interrupt_what_others_wait_for(app: Unstuck) -> None:
    making, go = asyncio.Event(), asyncio.Event()
    made: list[str] = []

    async def pool() -> str:
        making.set()
        await go.wait()
        made.append("pool")
        return "pool"

    @app.task
    async def send(to: str, pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    first = await send.enqueue("ann")
    async with at_work(app):
        await making.wait()
        second = await send.enqueue("bob")
        assert await first.cancel()

        async def given_up() -> bool:
            return "cancelled" in str(
                [event.type for event in await (await app.store()).events(job=first.ref)]
            )

        await until_async(given_up, 20, "the end of the first job")
        go.set()
        assert await second.result(timeout=60) == "pool"
    assert made == ["pool"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_error_reaches_each_generator_and_stays_the_error_of_the_job(
    app: Unstuck, book: Book, kind: str
) -> None:
    async def outer() -> AsyncIterator[str]:
        try:
            yield "outer"
        except Permanent as error:
            book.lines.append(f"outer saw {error}")  # and swallows it

    def inner(outer: str = Depends(outer)) -> Iterator[str]:
        try:
            yield "inner"
        except Permanent as error:
            book.lines.append(f"inner saw {error}")
            raise

    async def on_loop(db: str = Depends(inner)) -> None:
        raise Permanent("no such user")

    def in_thread(db: str = Depends(inner)) -> None:
        raise Permanent("no such user")

    handle = await app.task(on_loop if kind == "async" else in_thread).enqueue()
    await burst(app)

    with pytest.raises(JobFailed, match="no such user"):
        await handle.result(timeout=0)
    assert book.lines == ["inner saw no such user", "outer saw no such user"]


async def test_a_dependency_that_fails_is_the_failure_of_the_job(app: Unstuck, book: Book) -> None:
    first = book.make("generator", "first")

    async def second(first: str = Depends(first)) -> str:
        raise Permanent("the disk is full")

    def third() -> Iterator[None]:
        yield
        raise Permanent("could not commit")

    @app.task
    async def never_called(to: str, db: str = Depends(second)) -> None:
        book.lines.append("handler")

    @app.task
    async def not_committed(db: None = Depends(third)) -> None: ...

    handles = [await never_called.enqueue("ann"), await not_committed.enqueue()]
    await burst(app, concurrency=1)

    failures = [(await handle.job()).error for handle in handles]
    assert [failure and failure.message for failure in failures] == ["the disk is full", "could not commit"]
    assert book.lines == ["make first"]  # a plain generator hears of the error, and ends there


@pytest.mark.parametrize("kind", ["generator", "async generator"])
async def test_a_job_that_is_cancelled_leaves_what_was_made(app: Unstuck, book: Book, kind: str) -> None:
    begun = asyncio.Event()

    def plain() -> Iterator[str]:
        try:
            yield "db"
        finally:
            book.lines.append("left")

    async def other() -> AsyncIterator[str]:
        try:
            yield "db"
        finally:
            await asyncio.sleep(0)
            book.lines.append("left")

    chosen: Any = plain if kind == "generator" else other

    @app.task
    async def send(db: str = Depends(chosen)) -> None:
        begun.set()
        await asyncio.Event().wait()

    handle = await send.enqueue()
    async with at_work(app):
        await begun.wait()
        await handle.cancel()
        await until_async(lambda: book.lines == ["left"], 20, "the end of the dependency")


async def test_what_a_thread_still_made_when_its_job_was_cancelled_is_left(app: Unstuck, book: Book) -> None:
    entering, go = threading.Event(), threading.Event()

    def session() -> Iterator[str]:
        entering.set()
        go.wait(60)
        try:
            yield "session"
        finally:
            book.lines.append("left")

    @app.task
    async def send(db: str = Depends(session)) -> None:
        book.lines.append("handler")

    handle = await send.enqueue()
    async with at_work(app) as worker:
        await asyncio.to_thread(entering.wait, 60)
        assert await handle.cancel()

        async def known() -> bool:
            return all(held.context.cancelled for held in worker._held.all())

        await until_async(known, 20, "the worker to know")
        go.set()
        await until_async(lambda: bool(book.lines), 20, "the end of the dependency")
    assert book.lines == ["left"]


async def test_a_job_out_of_time_leaves_what_was_made_when_its_thread_has_ended(
    app: Unstuck, book: Book
) -> None:
    go = threading.Event()

    def session() -> Iterator[int]:
        yield threading.get_ident()
        book.lines.append(f"left, open: {go.is_set()}")

    async def other() -> AsyncIterator[str]:
        try:
            yield "db"
        finally:
            book.lines.append("other left")

    @app.task(timeout=4, retry=1)  # enough to make them on a machine that stands still
    def send(db: int = Depends(session), other: str = Depends(other)) -> None:
        try:
            go.wait(60)
        finally:
            book.lines.append("handler ended")

    handle = await send.enqueue()
    async with at_work(app, concurrency=1):
        with pytest.raises(JobFailed, match="took longer than 4 s"):
            await handle.result(timeout=60)
        assert book.lines == []
        go.set()
        await until_async(lambda: len(book.lines) > 1, 20, "the end of the dependencies")
    assert book.lines[:2] == ["handler ended", "other left"]


async def test_dependencies_are_left_when_the_worker_is_stopped_at_once(app: Unstuck, book: Book) -> None:
    begun = asyncio.Event()
    pool = book.make("async generator", "pool")

    async def session(pool: str = Depends(pool, scope="worker")) -> AsyncIterator[str]:
        try:
            yield "session"
        finally:
            book.lines.append("leave session")

    @app.task
    async def send(db: str = Depends(session)) -> None:
        begun.set()
        await asyncio.Event().wait()

    handle = await send.enqueue()
    async with at_work(app):
        await begun.wait()

    assert book.lines == ["make pool", "leave session", "leave pool"]
    assert await handle.status() is Status.PENDING


async def test_one_that_meets_a_cancellation_ends_neither_the_worker_nor_what_it_shares(
    app: Unstuck, book: Book
) -> None:
    pool = book.make("async generator", "pool")

    async def broken(pool: str = Depends(pool, scope="worker")) -> str:
        raise asyncio.CancelledError

    @app.task(retry=1)
    async def send(other: str = Depends(broken, scope="worker")) -> None: ...

    @app.task
    async def read(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    failing, reading = await send.enqueue(), await read.enqueue()
    await burst(app, concurrency=1)

    with pytest.raises(JobFailed, match="was cancelled, but not its job"):
        await failing.result(timeout=0)
    assert await reading.result(timeout=0) == "pool"
    assert book.lines == ["make pool", "leave pool"]


@pytest.mark.parametrize("kind", ["on the loop", "in a thread"])
async def test_one_of_the_worker_that_is_never_made_does_not_keep_the_worker(
    app: Unstuck, book: Book, kind: str
) -> None:
    making, go = threading.Event(), threading.Event()
    pool = book.make("async generator", "pool")

    async def on_loop(pool: str = Depends(pool, scope="worker")) -> None:
        making.set()
        await asyncio.Event().wait()

    def in_thread(pool: str = Depends(pool, scope="worker")) -> None:
        making.set()
        go.wait(120)

    chosen: Any = on_loop if kind == "on the loop" else in_thread

    @app.task
    async def send(db: None = Depends(chosen, scope="worker")) -> None: ...

    handle = await send.enqueue()
    worker = Worker(app, grace=0)
    running = asyncio.create_task(worker.run())
    await until_async(making.is_set, 20, "the dependency to be made")
    worker.stop()
    try:
        done, _ = await asyncio.wait([running], timeout=60)
    finally:
        go.set()

    assert done
    assert await handle.status() is Status.PENDING
    if kind == "on the loop":
        assert (book.lines, worker.stuck) == (["make pool", "leave pool"], 0)
    else:
        assert worker.stuck == 1  # the command then ends the process without it


async def test_an_isolated_handler_has_its_own(tmp_path: Path, harness: Any) -> None:
    app = depends_app.app
    file, other = tmp_path / "notes", tmp_path / "other"
    async with app.using(harness.url):
        on_loop = await depends_app.in_its_own_loop.enqueue(str(file))
        fails = await depends_app.in_its_main_thread.enqueue(str(other), fails=True)
        await Worker(app, burst=True).run()

        db, n, pid = await on_loop.result(timeout=0)
        assert (db, n) == ("engine session", 5)
        assert pid != os.getpid()
        with pytest.raises(JobFailed, match="no"):
            await fails.result(timeout=0)
    made = ["engine", "session"]
    assert file.read_text().split("\n")[:-1] == [*made, "session left", "engine left"]
    seen = ["session saw no", "session left"]
    assert other.read_text().split("\n")[:-1][:4] == [*made, *seen]
