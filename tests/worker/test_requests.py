"""A rate of requests: a handler that sends several in one start takes a token for each, and gives back one it did not need."""

import asyncio
import time
from itertools import pairwise

import pytest
from support.spy import spied
from support.work import at_work, burst

from unstuck import Rate, RateLimited, Unstuck, UnstuckError, Worker, current_job, current_jobs
from unstuck.testing import SQLiteHarness
from unstuck.worker import rate_limits

pytestmark = pytest.mark.anyio
LONG = 3600.0


async def left(harness: SQLiteHarness, count: int) -> int:
    """How many tokens of the bucket are there."""
    return count - (await harness.store.take("default")).out


async def test_the_first_request_has_the_token_of_the_start_and_each_further_one_its_own(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.batch(9, rate=Rate(5, per=LONG))
    async def work(items: list[int]) -> list[int]:
        first, *_ = current_jobs()
        for _ in range(3):
            await first.token()
        return items

    await app.enqueue_many([work.call(number) for number in range(9)])
    await burst(app)
    assert await left(harness, 5) == 2


async def test_a_start_that_needed_no_request_gives_its_token_back_once(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task(rate=Rate(2, per=LONG))
    async def work(requests: int) -> None:
        for _ in range(requests):
            await current_job().token()
        for _ in range(2):
            await current_job().give_back_token()

    for requests in (0, 0, 0, 1):
        await work.enqueue(requests)
        await burst(app)
    assert await left(harness, 2) == 1


async def test_without_a_token_in_time_what_did_not_start_is_given_back_and_the_rest_is_done(
    app: Unstuck,
) -> None:
    @app.batch(3, rate=Rate(2, per=LONG))
    async def work(items: list[int]) -> list[int | Exception]:
        job, answers = current_jobs()[0], list[int | Exception]()
        for item in items:
            try:
                await job.token(patience=0)
            except Exception as error:  # noqa: BLE001 - handed on
                answers.append(error)
            else:
                answers.append(item)
        return answers

    handles = await app.enqueue_many([work.call(number) for number in range(3)])
    await Worker(app).process_jobs(3)
    jobs = [await handle.job() for handle in handles]
    assert [(str(job.status), job.attempts) for job in jobs] == [("completed", 1)] * 2 + [("pending", 0)]


async def test_a_request_waits_for_its_token(app: Unstuck) -> None:
    requests: list[float] = []

    @app.task(rate=Rate(1, per=0.3))
    async def work() -> None:
        for _ in range(3):
            await current_job().token()
            requests.append(time.monotonic())

    handle = await work.enqueue()
    async with at_work(app):
        await handle.result(30)
    assert min(later - earlier for earlier, later in pairwise(requests)) >= 0.3


async def test_a_token_that_is_too_old_for_the_first_request_is_exchanged(
    app: Unstuck, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "LEAST", 0.2)
    monkeypatch.setattr(rate_limits, "SHARE", 0.0)

    @app.task(rate=Rate(1, per=LONG))
    async def work() -> None:
        await asyncio.sleep(0.3)
        await current_job().token(patience=5)

    book = await spied(app)
    handle = await work.enqueue()
    await Worker(app).process_jobs(1)
    await handle.result(0)
    assert len([call for call in book.of("give_back") if call.args]) == 1
    assert len([call for call in book.of("take") if len(call.args) > 1]) == 2
    assert await left(harness, 1) == 0


async def test_a_handler_can_see_how_things_stand_with_the_rate(app: Unstuck) -> None:
    @app.task(name="rated", queue="rated", rate=Rate(5, per=LONG))
    async def rated() -> list[float]:
        state = await current_job().rate()
        assert state is not None
        return [state.count, state.per, min(state.out, 1), round(state.closed_for)]

    @app.task
    async def plain() -> bool:
        await current_job().token()
        await current_job().give_back_token()
        return await current_job().rate() is None

    handle, other = await rated.enqueue(), await plain.enqueue()
    await burst(app)
    assert await handle.result() == [5, LONG, 1, 0]
    assert await other.result()


async def test_jobs_of_a_batch_that_met_the_same_refusal_are_logged_once(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    @app.batch(5)
    async def work(items: list[int]) -> list[int | Exception]:
        refused = RateLimited("later", delay=60)
        return [item if item == 0 else refused for item in items]

    handles = await app.enqueue_many([work.call(number) for number in range(5)])
    await Worker(app).process_jobs(5)
    jobs = [await handle.job() for handle in handles]
    assert [(str(job.status), job.attempts) for job in jobs] == [("completed", 1)] + [("pending", 0)] * 4
    assert len([record for record in caplog.records if "rate limited" in record.message]) == 1


async def test_a_process_of_its_own_cannot_ask_for_tokens(app: Unstuck) -> None:
    from unstuck.app.context import Context  # as the child makes it
    from unstuck.testing.conformance.given import enqueued, leased

    store = await app.store()
    await enqueued(store, 1)
    [job] = await leased(store, 1)
    context = Context(job)
    context.alone = True
    with pytest.raises(UnstuckError, match="a process of its own"):
        await context.token()
