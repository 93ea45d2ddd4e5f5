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
from unstuck.protocol.store import Store
from unstuck.stores.postgres import wakeup
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued

pytestmark = pytest.mark.anyio

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'LISTEN%%' AND query LIKE %s"
)
SLACK = 0.5
PATIENCE = 20.0  # seconds: who is neither rung for nor looks waits for a minute


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


async def listeners(harness: PostgresHarness) -> set[int]:
    return {pid for (pid,) in await harness.rows(LISTENERS, (f"%{harness.schema}%",))}


async def listening(harness: PostgresHarness, *, besides: frozenset[int] = frozenset()) -> int:
    """Until there is a listener, which may take longer than a wait stays for it."""

    async def heard() -> set[int]:
        return await listeners(harness) - besides

    [pid] = await until_async(heard, PATIENCE, "a listener")
    return pid


class Waiting:
    """A store that waits for work, with its looks counted; one that is ``blind`` sees nothing then: only a ring wakes it."""

    def __init__(self, store: Store, *, blind: bool = False) -> None:
        self.looks = 0
        wakeup_: Any = store._wakeup  # type: ignore[attr-defined]
        look = wakeup_._look

        async def counted(queues: list[str]) -> object:
            self.looks += 1
            found = await look(queues)
            return (False, None) if blind else found

        wakeup_._look = counted
        self._task = asyncio.create_task(store.wait(["q"], 60.0))

    async def rare(self, looks: int) -> None:
        """Until it has looked so often that it looks rarely now."""
        await until_async(lambda: self.looks >= looks, 20, f"{looks} looks")

    async def woken(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._task

    async def woken_by_looking(self) -> None:
        """By the first look that began since."""
        before = self.looks
        await self.woken()
        assert self.looks <= before + 1


async def test_a_job_enqueued_when_the_listener_has_just_died_is_found_by_looking(
    harness: PostgresHarness,
) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store)
        await waiting.rare(7)
        listener = await listening(harness)
        await harness.rows("SELECT pg_terminate_backend(%s)", (listener,))
        await enqueued(harness.store)

        await waiting.woken_by_looking()


async def test_a_listener_that_was_lost_comes_back_and_is_notified(harness: PostgresHarness) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store)
        await waiting.rare(3)
        first = await listening(harness)
        await harness.rows("SELECT pg_terminate_backend(%s)", (first,))
        second = await listening(harness, besides=frozenset({first}))
        await enqueued(harness.store)
        await waiting.woken()

        for _ in range(2):
            await harness.rows("DELETE FROM {schema}.jobs")
            waiting = Waiting(store, blind=True)
            await waiting.rare(4)  # so much later than the last ring that the next one is let pass
            await enqueued(harness.store)
            await waiting.woken()
        assert await listeners(harness) == {second}


async def test_a_worker_whose_listener_dies_starts_jobs_within_the_floor(harness: PostgresHarness) -> None:
    app, started = Unstuck(harness.url), []

    @app.task
    async def work(enqueued_at: float) -> None:
        started.append(time.monotonic() - enqueued_at)

    async with app, at_work(app):
        await until_async(lambda: listeners(harness), PATIENCE, "a listener")
        for pid in await listeners(harness):
            await harness.rows("SELECT pg_terminate_backend(%s)", (pid,))
        await (await work.enqueue(time.monotonic())).result(10)
    assert max(started) < wakeup.FLOOR + SLACK


async def test_behind_a_pooler_nobody_listens_and_jobs_are_found_by_looking(harness: PostgresHarness) -> None:
    async with open_store(f"{harness.url}&pooler=transaction") as store:
        waiting = Waiting(store)
        await waiting.rare(6)
        assert await listeners(harness) == set()
        await enqueued(harness.store)

        await waiting.woken_by_looking()


async def test_a_job_that_is_due_before_the_next_look_is_reported_at_once(harness: PostgresHarness) -> None:
    async with harness.store.twin() as store:
        waiting = Waiting(store, blind=True)
        await waiting.rare(1)
        await listening(harness)

        await enqueued(harness.store, delay=0.9)

        await waiting.woken()
