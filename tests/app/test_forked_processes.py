"""Handlers that fork and forget that the child must end: it ends when it comes back, and nobody else notices."""

from pathlib import Path

import pytest
from support.workers import Workers, worker_of

from unstuck import Status

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TASKS = ["forks_on_loop", "forks_in_a_task", "forks_in_thread", "forks_apart", "forks_apart_in_a_function"]
WAYS = ["returns", "raises", "exits", "awaits"]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_a_child_that_a_handler_forked_ends_when_it_comes_back(
    workers: Workers, tmp_path: Path, loop: str
) -> None:
    if loop == "asyncio":  # the worker takes uvloop if it can be imported
        (tmp_path / "uvloop.py").write_text("raise ImportError")
    neighbours = await workers.enqueue("neighbour", 4, queue="default")
    forking = [(await workers.enqueue(task, queue="default", way=way))[0] for task in TASKS for way in WAYS]
    worker = workers.start("--concurrency", "30", "--grace", "5", app="forking_app:app")
    pid = worker_of(worker)

    await workers.finished(60, worker)

    jobs = {job.ref: job for job in await workers.jobs()}
    told = {f"{jobs[ref].task} {jobs[ref].payload}": (jobs[ref].status, jobs[ref].result) for ref in forking}
    assert set(told.values()) == {(Status.COMPLETED, 1)}, told
    assert {(jobs[ref].result, jobs[ref].attempts) for ref in neighbours} == {(pid, 1)}
    assert set(workers.noted("step")) == {pid}, "a job of the worker went on in a child"
    assert not workers.noted("lifespan left in a fork")
    worker.until_line("task forks_on_loop forked, and its child, process .* came back")
    worker.until_line("task forks_in_thread forked, and its child, process .* came back")

    [later] = await workers.enqueue("neighbour", queue="default")  # the loop of the parent still turns
    job = await workers.over(later, 30, worker)
    assert job.result == pid
    worker.terminate()
    assert worker.wait() == 0
