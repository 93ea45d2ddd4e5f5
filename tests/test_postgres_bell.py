"""Wake-ups on PostgreSQL that are lost or cannot come: a job is found all the same."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.postgres import Postgres
from support.waiting import until_async
from support.work import at_work

from unstuck import Unstuck, open_store
from unstuck.store import Store
from unstuck.stores.postgres import bell
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued

pytestmark = pytest.mark.anyio

LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND query LIKE %s"
SOON = 0.5  # seconds; a look comes this soon by itself only at the beginning of a wait
SLACK = 0.5


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


async def listeners(harness: PostgresHarness) -> set[int]:
    return {pid for (pid,) in await harness.rows(LISTENERS, (f"%{harness.schema}%",))}


class Waiting:
    """A store that waits for work, with its looks counted."""

    def __init__(self, store: Store) -> None:
        self.looks = 0
        ring: Any = store._bell  # type: ignore[attr-defined]
        look = ring._look

        async def counted(queues: list[str]) -> object:
            self.looks += 1
            return await look(queues)

        ring._look = counted
        self._task = asyncio.create_task(store.wait(["q"], 60.0))

    async def rare(self, looks: int) -> None:
        """Until it has looked so often that it looks rarely now."""
        await until_async(lambda: self.looks >= looks, 10, f"{looks} looks")

    async def woken(self, within: float) -> None:
        async with asyncio.timeout(within):
            await self._task


async def test_a_job_enqueued_when_the_listener_has_just_died_is_found_by_looking(
    harness: PostgresHarness,
) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store)
        await waiting.rare(7)
        [listener] = await listeners(harness)
        await harness.rows("SELECT pg_terminate_backend(%s)", (listener,))
        await enqueued(harness.store)

        await waiting.woken(bell.FLOOR + SLACK)


async def test_a_listener_that_was_lost_comes_back_and_hears(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store)
        await waiting.rare(3)
        [first] = await listeners(harness)
        await harness.rows("SELECT pg_terminate_backend(%s)", (first,))

        async def another() -> set[int]:
            return await listeners(harness) - {first}

        [second] = await until_async(another, bell.AGAIN + 3.0, "another listener")
        await enqueued(harness.store)
        await waiting.woken(bell.FLOOR + SLACK)

        monkeypatch.setattr(bell, "FLOOR", 60.0)  # from here on only a ring comes soon
        for _ in range(2):
            await harness.rows("DELETE FROM {schema}.jobs")
            waiting = Waiting(store)
            await waiting.rare(8)
            began = time.monotonic()
            await enqueued(harness.store)
            await waiting.woken(SOON)
            assert time.monotonic() - began < SOON
        assert await listeners(harness) == {second}


async def test_a_worker_whose_listener_dies_starts_jobs_within_the_floor(harness: PostgresHarness) -> None:
    app, started = Unstuck(harness.url), []

    @app.task
    async def work(enqueued_at: float) -> None:
        started.append(time.monotonic() - enqueued_at)

    async with app, at_work(app):
        await until_async(lambda: listeners(harness), 10, "a listener")
        for pid in await listeners(harness):
            await harness.rows("SELECT pg_terminate_backend(%s)", (pid,))
        await (await work.enqueue(time.monotonic())).result(10)
    assert max(started) < bell.FLOOR + SLACK


async def test_behind_a_pooler_nobody_listens_and_jobs_are_found_by_looking(harness: PostgresHarness) -> None:
    async with open_store(f"{harness.url}&pooler=transaction") as store:
        waiting = Waiting(store)
        await waiting.rare(6)
        assert await listeners(harness) == set()
        await enqueued(harness.store)

        await waiting.woken(bell.DEAF_FLOOR + SLACK)


async def test_a_job_that_is_due_before_the_next_look_is_told_of_at_once(harness: PostgresHarness) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store)
        await waiting.rare(8)

        await enqueued(harness.store, delay=0.9)

        await waiting.woken(SOON)
