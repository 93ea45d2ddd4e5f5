"""What people who know other queues would do here, and what happens then."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import Command
from support.refusal import refusal
from support.work import at_work, burst

from unstuck import (
    ConfigError,
    Context,
    Depends,
    JobFailed,
    JobPending,
    Retry,
    Status,
    Transient,
    Unstuck,
    Worker,
    current_job,
    open_store,
)
from unstuck.operations.store_urls import same_store
from unstuck.testing import inline

pytestmark = pytest.mark.anyio
WAY_OUT = r"keeps its slot, .*: let it follow with current_job\(\)\.then\(task\.call\(…\)\), .*result\(allow_wait=True\)"


def plain() -> int:
    return 1


def waiting(app: Unstuck, **how: Any) -> dict[str, Callable[[], Any]]:
    """Handlers of each kind that enqueue a job and wait for it."""
    task = app.task(name="other")(plain)

    async def on_loop() -> int:
        return await (await task.enqueue()).result(**how)

    def in_thread() -> int:
        return task.enqueue_sync().result(**how)

    async def in_its_own_task() -> int:
        return await asyncio.create_task(on_loop())

    return {"loop": on_loop, "thread": in_thread, "task": in_its_own_task}


@pytest.mark.parametrize("kind", ["loop", "thread", "task"])
async def test_the_error_of_a_handler_that_waits_for_another_job_names_the_way_out(
    app: Unstuck, kind: str
) -> None:
    handle = await app.task(retry=5)(waiting(app)[kind]).enqueue()

    await burst(app)

    job = await handle.job()
    assert (job.status, job.attempts) == (Status.FAILED, 1)
    with pytest.raises(Exception, match=WAY_OUT):
        await handle.result()


TRAP = Unstuck("sqlite:///:memory:")
other_in_trap = TRAP.task(name="other")(plain)


@TRAP.task(isolate=True)
async def alone() -> int:
    return await (await other_in_trap.enqueue()).result()


async def test_so_is_one_in_a_process_of_its_own(app: Unstuck) -> None:
    async with TRAP.using(app.url):
        handle = await alone.enqueue()
        await burst(TRAP)

        with pytest.raises(JobFailed, match=WAY_OUT):
            await handle.result()


async def test_so_are_a_middleware_and_a_dependency(app: Unstuck) -> None:
    handlers = waiting(app)

    async def before(job: Context, call_next: Callable[[], Any]) -> Any:
        return await handlers["loop"]() + await call_next()

    @app.task(middleware=[before])
    async def in_middleware() -> int:
        return 1

    @app.task
    async def in_dependency(number: int = Depends(handlers["thread"])) -> int:
        return number

    for task in (in_middleware, in_dependency):
        handle = await task.enqueue()
        await burst(app)
        with pytest.raises(JobFailed, match=WAY_OUT):
            await handle.result()


@pytest.mark.parametrize("kind", ["loop", "thread", "task"])
async def test_it_may_wait_if_it_asks_for_it(app: Unstuck, kind: str) -> None:
    handle = await app.task(waiting(app, allow_wait=True)[kind]).enqueue()

    async with at_work(app):
        assert await handle.result(timeout=60) == 1


async def test_it_may_look_without_waiting(app: Unstuck) -> None:
    @app.task
    async def look() -> str:
        handle = await app.task(name="other", queue="elsewhere")(plain).enqueue()
        try:
            return str(await handle.result(timeout=0))
        except JobPending:
            return "pending"

    handle = await look.enqueue()
    await burst(app)

    assert await handle.result(timeout=0) == "pending"


async def test_code_around_handlers_is_not_one(app: Unstuck) -> None:
    """A test that ran jobs in its own event loop waits for them as before."""
    task = app.task(plain)
    async with inline(app) as jobs:
        handle = await task.enqueue()
        await jobs.run()
        assert await handle.result() == 1
    handle = await task.enqueue()
    assert await Worker(app).process_jobs(1) == 1
    assert await handle.result(timeout=5) == 1


async def test_until_idle_waits_for_retries_and_delays(app: Unstuck) -> None:
    @app.task(retry=Retry(3, backoff=(0.3,)))
    async def third_time() -> int:
        if current_job().attempt < 3:
            raise Transient("not yet")
        current_job().then(app.tasks["late"].options(delay=0.3).call())
        return current_job().attempt

    late = app.task(name="late")(plain)
    handle, delayed = await third_time.enqueue(), await late.options(delay=0.5).enqueue()

    async with asyncio.timeout(60):
        await Worker(app, until_idle=True).run()

    assert (await handle.result(timeout=0), await delayed.result(timeout=0)) == (3, 1)
    assert (await (await app.jobs()).get_queue_status())["completed"] == 3


async def test_until_idle_waits_for_what_another_worker_runs(app: Unstuck) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def held() -> None:
        begun.set()
        await go.wait()

    handle = await held.enqueue()
    first = asyncio.create_task(Worker(app, burst=True).run())
    await begun.wait()
    second = asyncio.create_task(Worker(app, until_idle=True).run())
    done, _ = await asyncio.wait([second], timeout=0.5)
    go.set()
    async with asyncio.timeout(60):
        await asyncio.gather(first, second)

    assert (done, await handle.status()) == (set(), Status.COMPLETED)


async def test_until_idle_does_not_wait_for_queues_that_are_stopped_or_not_its_own(app: Unstuck) -> None:
    handles = [await app.task(name=name, queue=name)(plain).enqueue() for name in ("paused", "other", "mine")]
    await (await app.jobs()).pause("paused", "for now")

    async with asyncio.timeout(60):
        await Worker(app, queues=["paused", "mine"], until_idle=True).run()

    assert [await handle.status() for handle in handles] == ["pending", "pending", "completed"]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_command_waits_until_nothing_is_left(run: Command, processes: str) -> None:
    [id_] = run("enqueue", "send", '{"to": "ann"}', "--queue", "mail", "--delay", "1").stdout.split()

    worked = run("worker", "tasks:app", "--until-idle", "--processes", processes)

    assert worked.returncode == 0, worked.stderr
    assert '"status": "completed"' in run("job", id_, "--json").stdout
    both = run("worker", "tasks:app", "--until-idle", "--burst")
    assert (both.returncode, both.stderr) == (
        2,
        "unstuck: --burst and --until-idle are two ends of a worker: choose one\n",
    )


async def test_a_worker_has_one_end(app: Unstuck) -> None:
    app.task(plain)

    assert refusal(lambda: Worker(app, burst=True, until_idle=True)) == (
        "burst and until_idle are two ends of a worker: choose one"
    )


async def test_a_store_in_memory_is_for_tests_alone() -> None:
    app = Unstuck("sqlite:///:memory:")
    task = app.task(plain)
    told = r"would be another one in each process and event loop, .*: name a file, sqlite:///jobs\.db; tests have unstuck\.testing\.inline"

    with pytest.raises(ConfigError, match=told):
        await task.enqueue()
    with pytest.raises(ConfigError, match=told):
        await asyncio.to_thread(task.enqueue_sync)
    with pytest.raises(ConfigError, match=told):
        await Worker(app, burst=True).run()
    async with inline(app) as jobs:
        handle = await task.enqueue()
        await jobs.run()
        assert await handle.result() == 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2", "psycopg_async"])
@pytest.mark.parametrize("kind", ["postgresql", "postgres"])
def test_a_url_of_sqlalchemys_is_understood(kind: str, driver: str) -> None:
    app = Unstuck(f"{kind}+{driver}://ann:secret@db:5432/shop?schema=jobs")

    assert app.url == "postgresql://ann:secret@db:5432/shop?schema=jobs"
    assert same_store(f"{kind}+{driver}://ann:secret@db:5432/shop?schema=jobs", app.url)
    open_store(f"{kind}+{driver}://db/shop")


@pytest.mark.parametrize("url", ["sqlite+aiosqlite:///jobs.db", "postgresql+pg8000://db/shop"])
def test_any_other_driver_is_named_as_what_to_drop(url: str) -> None:
    kind, _, driver = url.partition("://")[0].partition("+")

    assert refusal(lambda: Unstuck(url)) == (
        f"store {url!r} names a driver, which is not chosen here: drop '+{driver}', as in {kind}://"
    )


def test_the_folder_of_a_file_is_not_changed_by_this(tmp_path: Path) -> None:
    url = f"sqlite:////{tmp_path}/postgresql+asyncpg:/jobs.db"

    assert "+asyncpg" in Unstuck(url).url
