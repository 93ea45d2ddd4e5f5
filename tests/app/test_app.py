"""The application's face: registering tasks, enqueueing jobs and following them."""

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest
from support.refusal import refusal

import unstuck
from unstuck import (
    JobFailed,
    JobPending,
    PayloadError,
    Permanent,
    Retry,
    SchemaError,
    Status,
    Unstuck,
    Worker,
    current_job,
)
from unstuck.testing import inline

pytestmark = pytest.mark.anyio
MEMORY = "sqlite:///:memory:"
FORKED = """
import os, signal, sys
from unstuck import Unstuck
task = Unstuck(sys.argv[1]).task(name="t")(lambda: None)
task.enqueue_sync()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(50)
task.enqueue_sync()
os._exit(0)
"""
SYNCHRONOUS = """
import asyncio, sys
from unstuck import Unstuck
from unstuck.testing import inline
app = Unstuck(sys.argv[1])
second = app.task(name="second")(lambda: None)
first = app.task(name="first")(lambda: second.enqueue_sync().id)
async def main():
    async with inline(app) as jobs:
        handle = await first.enqueue()
        await jobs.run()
        assert await jobs.jobs.get(await handle.result())
asyncio.run(main())
"""


async def send(to: str, count: int = 1) -> str:
    return f"{count} to {to}"


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise Permanent("no such entity", code="missing")


async def counts(app: Unstuck) -> dict[str, int]:
    return {status: n for status, n in (await (await app.jobs()).get_queue_status()).items() if n}


def test_a_name_cannot_be_given_twice() -> None:
    app = Unstuck(MEMORY)
    app.task(send)

    assert refusal(lambda: app.task(name="send")(add)) == (
        "task 'send' is registered already: give one of the two another name="
    )


def test_tasks_of_one_queue_must_agree_on_its_policy() -> None:
    app = Unstuck(MEMORY)
    app.task(queue="mail", lease=60.0, max_crashes=10)(send)

    told = refusal(lambda: app.task(queue="mail", lapse_backoff=(30.0,))(add))

    assert told == (
        "task 'add' disagrees with the other tasks of queue 'mail' in lease 60.0 and 20.0, "
        "max_crashes 10 and None, lapse_backoff () and (30.0,): make them agree, or give it a queue of its own"
    )


def test_a_function_without_a_name_needs_one() -> None:
    assert refusal(lambda: Unstuck(MEMORY).task(lambda: None)).startswith(
        "task name '<lambda>' is not allowed"
    )


def test_a_task_that_is_refused_leaves_nothing_behind() -> None:
    app = Unstuck(MEMORY)

    refusal(lambda: app.task(queue="mail", lease=60.0)(lambda *args: None))
    refusal(lambda: app.task(name="t", queue="mail", lease=60.0)(lambda *args: None))

    assert (app.tasks, app.queues) == ({}, {})


async def test_a_task_called_directly_is_just_the_function() -> None:
    app = Unstuck(MEMORY)

    assert await app.task(send)("ann", 2) == "2 to ann"
    assert app.task(name="sum")(add)(1, b=2) == 3


async def test_a_job_is_stored_with_all_options_of_its_task(app: Unstuck) -> None:
    task = app.task(
        queue="mail", retry=Retry(attempts=7, backoff=(5.0,)), max_crashes=9, lapse_backoff=(3.0,)
    )(send)

    handle = await task.enqueue("ann")
    job = await handle.job()

    assert (handle.queue, handle.created, job.ref) == ("mail", True, handle.ref)
    assert (job.task, job.payload, job.status) == ("send", {"to": "ann", "count": 1}, Status.PENDING)
    assert (job.max_attempts, job.backoff, job.max_crashes, job.lapse_backoff) == (7, (5.0,), 9, (3.0,))


async def test_options_are_those_of_one_job_only(app: Unstuck) -> None:
    task = app.task(send)
    later = datetime(2999, 1, 1, tzinfo=timezone(timedelta(hours=14)))

    urgent = await (await task.options(priority=9, delay=timedelta(minutes=1)).enqueue("ann")).job()
    late = await (await task.options(run_at=later).enqueue("ann")).job()
    usual = await (await task.enqueue("ann")).job()

    assert (urgent.priority, urgent.run_at - urgent.created_at) == (9, timedelta(minutes=1))
    assert late.run_at == later
    assert (usual.priority, usual.run_at) == (0, usual.created_at)


async def test_many_jobs_of_several_tasks_are_enqueued_in_order(app: Unstuck) -> None:
    mail, sums = app.task(queue="mail")(send), app.task(queue="sums")(add)

    handles = await app.enqueue_many([mail.call("ann"), sums.call(1, 2), mail.options(key="k").call("bob")])

    assert [(await handle.job()).payload for handle in handles] == [
        {"to": "ann", "count": 1},
        {"a": 1, "b": 2},
        {"to": "bob", "count": 1},
    ]
    assert await app.enqueue_many([]) == []


async def test_of_a_batch_with_a_bad_call_nothing_is_stored(app: Unstuck) -> None:
    task: Any = app.task(send)

    with pytest.raises(PayloadError, match="Expected `str`, got `int`"):
        await app.enqueue_many(task.call(to) for to in ("ann", 5, "bob"))

    assert await counts(app) == {}


async def test_a_key_makes_the_second_job_the_first(app: Unstuck) -> None:
    task = app.task(send)

    first = await task.options(key="k").enqueue("ann")
    same = await task.options(key="k").enqueue("ann", 1)
    other = await task.options(key="k", again=True).enqueue("bob")

    assert [handle.id for handle in (same, other)] == [first.id] * 2
    assert [handle.created for handle in (first, same, other)] == [True, False, False]
    assert [handle.same_content for handle in (first, same, other)] == [True, True, False]
    assert (await first.job()).payload == {"to": "ann", "count": 1}


async def test_again_starts_a_finished_job_over(app: Unstuck) -> None:
    task = app.task(send)
    await (await task.options(key="k").enqueue("ann")).cancel()

    handle = await task.options(key="k", again=True).enqueue("bob")
    job = await handle.job()

    assert (handle.created, job.status, job.payload) == (True, Status.PENDING, {"to": "bob", "count": 1})


async def test_a_handle_follows_its_job_to_the_result(app: Unstuck) -> None:
    handle = await app.task(send).enqueue("ann")
    with pytest.raises(JobPending, match=r"is still pending after 0 s: No worker takes queue 'default'"):
        await handle.result(timeout=0)

    await Worker(app, burst=True).run()

    assert (await handle.status(), await handle.result()) == (Status.COMPLETED, "1 to ann")
    assert not await handle.cancel()
    assert issubclass(JobPending, TimeoutError)


async def test_a_handle_raises_what_its_job_failed_of(app: Unstuck) -> None:
    handle = await app.task(fail).enqueue()
    await Worker(app, burst=True).run()

    with pytest.raises(JobFailed, match=f"job {handle.id} failed: missing: no such entity") as caught:
        await handle.result()

    assert (caught.value.job, caught.value.failure.code) == (handle.id, "missing")


async def test_a_cancelled_job_has_failed_and_gives_the_reason(app: Unstuck) -> None:
    handle = await app.task(send).enqueue("ann")

    assert [await handle.cancel(), await handle.cancel()] == [True, False]
    with pytest.raises(JobFailed, match="cancelled by request"):
        await handle.result()


def test_code_without_an_event_loop_can_do_the_same(tmp_path: Path) -> None:
    task = Unstuck(f"sqlite:///{tmp_path}/jobs.db").task(send)

    first, second = task.enqueue_sync("ann"), task.options(key="k").enqueue_sync("bob", count=2)

    assert (first.status(), first.job().payload) == (Status.PENDING, {"to": "ann", "count": 1})
    assert first.explain().startswith("No worker takes queue 'default': start one that does.")
    with pytest.raises(JobPending):
        first.result(timeout=0)
    assert (second.cancel(), second.cancel(), second.status()) == (True, False, Status.FAILED)
    with pytest.raises(PayloadError):
        task.enqueue_sync(5)  # type: ignore[arg-type]


async def test_threads_and_the_loop_itself_may_enqueue_synchronously_while_it_runs(app: Unstuck) -> None:
    task = app.task(send)

    handles = await asyncio.gather(*(asyncio.to_thread(task.enqueue_sync, f"{n}") for n in range(8)))
    with pytest.warns(RuntimeWarning, match=r"holds up everything on it: .* await task\.enqueue") as warned:
        handles.append(task.enqueue_sync("loop"))

    assert [each.filename for each in warned] == [__file__]
    assert len({handle.id for handle in handles}) == 9
    assert await counts(app) == {"pending": 9}


def test_one_app_serves_several_event_loops(tmp_path: Path) -> None:
    app = Unstuck(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(send)

    async def enqueue() -> dict[str, int]:
        async with app:
            await asyncio.gather(*(task.enqueue("ann") for _ in range(3)))
            return await counts(app)

    assert [asyncio.run(enqueue()), asyncio.run(enqueue())] == [{"pending": 3}, {"pending": 6}]


@pytest.mark.parametrize("program", [FORKED, SYNCHRONOUS], ids=["after a fork", "in a handler run inline"])
def test_a_job_can_be_enqueued_synchronously(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", program, f"sqlite:///{tmp_path}/jobs.db"]

    assert subprocess.run(command, timeout=60, check=False).returncode == 0


async def test_another_store_is_used_for_a_block_only_however_it_ends(app: Unstuck, tmp_path: Path) -> None:
    task = app.task(send)

    with contextlib.suppress(ZeroDivisionError):
        async with app.using(f"sqlite:///{tmp_path}/other.db"):
            await task.enqueue("ann")
            await asyncio.to_thread(task.enqueue_sync, "bob")
            assert await counts(app) == {"pending": 2}
            _ = 1 / 0

    await task.enqueue("cid")
    assert await counts(app) == {"pending": 1}


async def test_after_a_block_synchronous_callers_use_the_apps_own_store(app: Unstuck, tmp_path: Path) -> None:
    task = app.task(send)
    async with app.using(f"sqlite:///{tmp_path}/other.db"):
        await asyncio.to_thread(task.enqueue_sync, "ann")

    await asyncio.to_thread(task.enqueue_sync, "bob")

    assert await counts(app) == {"pending": 1}


async def test_inline_runs_what_is_due_and_what_follows_on_a_store_of_its_own(app: Unstuck) -> None:
    task = app.task(send)

    @app.task
    async def begin(to: str) -> None:
        current_job().then(task.call(to))

    async with inline(app) as jobs:
        await begin.enqueue("ann")
        await task.options(delay=60).enqueue("bob")
        await jobs.run()
        assert await counts(app) == {"pending": 1, "completed": 2}

    assert await counts(app) == {}


async def test_a_store_that_refuses_leaves_no_thread_behind(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    before = set(threading.enumerate())

    with pytest.raises(SchemaError):
        await Unstuck(f"sqlite:///{tmp_path}/other.db").store()

    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"asyncio_0"}


def test_every_public_name_can_be_imported_and_none_is_a_module() -> None:
    """Names are loaded when they are used; a submodule of the same name would take its place."""
    modules = {name for name in unstuck.__all__ if isinstance(getattr(unstuck, name), ModuleType)}
    declared = set(re.findall(r"import \w+ as (\w+)", Path(unstuck.__file__ or "").read_text()))
    assert modules == set()
    assert set(unstuck.__all__) == declared
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        unstuck.nothing  # noqa: B018
