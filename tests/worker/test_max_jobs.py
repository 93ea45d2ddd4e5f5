"""A worker that ends after so many jobs: it never leases one that it may not start, and its last ones end in peace."""

import asyncio
from typing import Any

import pytest
from support.refusal import refusal
from support.spy import spied
from support.waiting import until_async

from unstuck import Filter, Permanent, Rate, Status, Transient, Unstuck, Worker, current_jobs

pytestmark = pytest.mark.anyio


async def numbers(app: Unstuck) -> dict[str, int]:
    counts = await (await app.jobs()).get_queue_status()
    return {name: counts[name] for name in ("pending", "processing", "completed", "failed") if counts[name]}


@pytest.mark.parametrize("kind", ["async", "thread", "rated"])
async def test_it_starts_so_many_jobs_and_leases_no_more(app: Unstuck, kind: str) -> None:
    async def on_loop() -> None: ...

    def in_thread() -> None: ...

    options: Any = {"rate": Rate(1000, per=1)} if kind == "rated" else {}
    task = app.task(**options)(in_thread if kind == "thread" else on_loop)
    await app.enqueue_many([task.call() for _ in range(40)])
    book = await spied(app)
    worker = Worker(app, max_jobs=17, concurrency=5)

    await worker.run()

    assert worker.spent.is_set()
    assert await numbers(app) == {"pending": 23, "completed": 17}
    assert max(most for _, most, _ in (call.args for call in book.of("lease"))) <= 17
    jobs = (await (await app.jobs()).find(Filter(), limit=100)).jobs
    left = [job for job in jobs if job.status is Status.PENDING]
    assert {job.attempts for job in left} == {0}
    if kind != "rated":  # one without a token may have been leased and given back
        assert {job.fence for job in left} == {0}


async def test_each_job_of_a_batch_counts(app: Unstuck) -> None:
    sizes: list[int] = []

    @app.batch(8)
    async def embed(texts: list[str]) -> list[int]:
        sizes.append(len(current_jobs()))
        return [len(text) for text in texts]

    await app.enqueue_many([embed.call("a") for _ in range(40)])
    await Worker(app, max_jobs=20, concurrency=2).run()

    assert (sum(sizes), await numbers(app)) == (20, {"pending": 20, "completed": 20})


async def test_attempts_count_however_they_end(app: Unstuck) -> None:
    @app.task(retry=1)
    async def fail(how: str) -> None:
        raise Permanent("no") if how == "permanent" else Transient("busy")

    await app.enqueue_many([fail.call(how) for how in ("permanent", "transient") * 3])
    await Worker(app, max_jobs=4).run()

    assert await numbers(app) == {"pending": 2, "failed": 4}


async def test_its_last_jobs_have_all_the_time_they_need(app: Unstuck) -> None:
    """Not the grace of a worker that is stopped."""
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def held() -> None:
        begun.set()
        await go.wait()

    first, second = await held.enqueue(), await held.enqueue()
    worker = Worker(app, max_jobs=1, grace=0)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    await until_async(worker.spent.is_set, 20, "the worker to be spent")
    done, _ = await asyncio.wait([running], timeout=0.5)
    assert not done
    go.set()
    async with asyncio.timeout(60):
        await running

    assert {await first.status(), await second.status()} == {Status.COMPLETED, Status.PENDING}


async def test_a_spent_worker_is_stopped_like_any_other(app: Unstuck) -> None:
    begun = asyncio.Event()

    @app.task
    async def held() -> None:
        begun.set()
        await asyncio.Event().wait()

    handle = await held.enqueue()
    worker = Worker(app, max_jobs=1, grace=0)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    async with asyncio.timeout(60):
        await running

    job = await handle.job()
    assert (job.status, job.attempts) == (Status.PENDING, 0)


async def test_a_burst_that_has_fewer_jobs_ends_with_them(app: Unstuck) -> None:
    task = app.task(name="work")(lambda: None)
    await task.enqueue()
    worker = Worker(app, max_jobs=2, burst=True)

    await worker.run()

    assert not worker.spent.is_set()
    assert await numbers(app) == {"completed": 1}


@pytest.mark.parametrize("given", [0, -1, 1.5, "5", True, 1_000_000_001])
def test_the_number_is_checked(given: Any) -> None:
    app = Unstuck("sqlite:///:memory:")
    app.task(name="work")(lambda: None)

    assert refusal(lambda: Worker(app, max_jobs=given)).startswith("max_jobs is ")
