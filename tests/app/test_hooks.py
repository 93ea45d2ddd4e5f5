"""What an application hangs on a worker: middlewares around handlers, lifespans around the whole."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import ConfigError, Permanent, Retry, Status, Transient, Unstuck, Worker, current_job
from unstuck.app.context import Context

pytestmark = pytest.mark.anyio
Next = Callable[[], Awaitable[Any]]


async def test_the_middleware_registered_first_is_the_outermost(app: Unstuck) -> None:
    order: list[str] = []

    for name in ("outer", "inner"):

        async def around(job: Context, call_next: Next, name: str = name) -> Any:
            order.append(f"{name} {job.job.task}")
            result = await call_next()
            order.append(f"{name} got {result}")
            return result

        app.middleware(around)

    @app.task
    async def work() -> int:
        order.append("handler")
        return 1

    @app.task
    def in_thread() -> int:
        return 2

    await work.enqueue()
    await burst(app)
    assert order == ["outer work", "inner work", "handler", "inner got 1", "outer got 1"]

    await in_thread.enqueue()
    await burst(app)
    assert order[-2:] == ["inner got 2", "outer got 2"]


async def test_what_a_middleware_makes_of_it_is_what_becomes_of_the_job(app: Unstuck) -> None:
    ran: list[str] = []

    @app.middleware
    async def meddle(job: Context, call_next: Next) -> Any:
        match job.job.payload["way"]:
            case "refuse":
                raise Permanent("not you")
            case "swallow":
                try:
                    await call_next()
                except Transient:
                    return "never mind"
            case "replace":
                return [await call_next(), "and more"]
            case "raise after":
                await call_next()
                raise Transient("too late")
        return await call_next()

    @app.task(retry=Retry(attempts=2, backoff=(60.0,)))  # in a later burst than this
    async def work(way: str) -> str:
        ran.append(way)
        if way in ("swallow", "plain"):
            raise Transient("oops")
        return way

    ways = ["refuse", "swallow", "replace", "raise after", "plain"]
    handles = dict(zip(ways, await app.enqueue_many([work.call(way) for way in ways]), strict=True))
    await burst(app)

    found = {way: await handle.job() for way, handle in handles.items()}
    assert sorted(ran) == ["plain", "raise after", "replace", "swallow"]
    assert (found["refuse"].status, found["refuse"].attempts) == (Status.FAILED, 1)
    assert (found["swallow"].status, found["swallow"].result) == (Status.COMPLETED, "never mind")
    assert found["replace"].result == ["replace", "and more"]
    assert [found[way].status for way in ("raise after", "plain")] == [Status.PENDING] * 2
    assert found["raise after"].error is not None
    assert found["raise after"].error.message == "too late"


async def test_a_middleware_may_log_and_pass_on_and_sees_what_was_raised(app: Unstuck) -> None:
    seen: list[str] = []

    @app.middleware
    async def watch(job: Context, call_next: Next) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            seen.append(f"{type(error).__name__} in attempt {job.attempt}")
            raise

    @app.task(retry=1)
    async def exits() -> None:
        raise SystemExit(1)

    handle = await exits.enqueue()
    await burst(app)

    assert seen == ["SystemExit in attempt 1"]
    assert await handle.status() is Status.FAILED


async def test_a_lifespan_is_entered_before_the_first_lease_and_left_after_the_last_job(app: Unstuck) -> None:
    order: list[str] = []
    book = await spied(app)

    @app.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        order.append(f"open, {len(book.of('lease'))} leases")
        yield
        order.append(f"close, {len(book.of('settle'))} settled")

    @app.task
    async def work() -> None:
        order.append("job")
        await asyncio.sleep(0.05)

    await work.enqueue()
    await burst(app)

    assert order == ["open, 0 leases", "job", "close, 1 settled"]


async def test_a_lifespan_is_left_when_the_worker_is_cancelled_and_after_its_jobs(app: Unstuck) -> None:
    order: list[str] = []
    started = asyncio.Event()

    @app.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        try:
            yield
        finally:
            order.append("close")

    @app.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("job ended")

    await work.enqueue()
    running = asyncio.create_task(Worker(app).run())
    await started.wait()
    running.cancel()
    await asyncio.wait([running], timeout=10)

    assert order == ["job ended", "close"]


async def test_a_lifespan_that_fails_ends_the_worker_with_its_error_and_no_job_is_taken(app: Unstuck) -> None:
    closed: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def fine() -> AsyncIterator[None]:
        yield
        closed.append("fine")

    @app.lifespan
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        if app:
            raise RuntimeError("no such model")
        yield

    @app.task
    async def work() -> None: ...

    handle = await work.enqueue()
    book = await spied(app)
    for run in (Worker(app).run, Worker(app).process_jobs):
        with pytest.raises(RuntimeError, match="no such model") as caught:
            await run()
        [note] = caught.value.__notes__
        assert note.startswith(f"lifespan 'broken' ({__name__}:")

    assert book.of("lease") == []
    assert await handle.status() is Status.PENDING
    assert (await handle.job()).fence == 0


@pytest.mark.filterwarnings("error")
async def test_a_lifespan_that_is_no_context_manager_is_reported_with_its_name_and_what_to_write(
    app: Unstuck,
) -> None:
    @app.task
    async def work() -> None: ...

    async def awaited() -> None: ...

    async def yields() -> AsyncIterator[None]:
        yield

    for bare, kind in ((awaited, "coroutine"), (yields, "async_generator")):
        app.lifespans[:] = [bare]  # type: ignore[list-item]  # as if nobody had looked at it before
        with pytest.raises(
            ConfigError, match=rf"^lifespan '{bare.__name__}' \({__name__}:\d+\) .*{kind}.* write @"
        ):
            await burst(app)


async def test_what_a_handler_reports_inside_a_middleware_belongs_to_its_job(app: Unstuck) -> None:
    @app.middleware
    async def tell(job: Context, call_next: Next) -> Any:
        job.progress("begun")
        return await call_next()

    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return current_job().id

    handle = await work.enqueue()
    async with at_work(app):

        async def begun() -> bool:
            return bool((await handle.job()).progress == "begun")

        await until_async(begun, 20, "the middleware's word")
        go_on.set()
        assert await handle.result(10) == handle.id
