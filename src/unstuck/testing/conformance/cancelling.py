"""Cancelling: a task that is cancelled in a call of the store ends, or the task that cancelled it would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import enqueued, leased
from unstuck.testing.harnesses.harness import Harness

TURNS = 12  # of the event loop, by which sending is over in every driver

CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "clock": lambda store: store.clock(),
    "fleet": lambda store: store.fleet(),
    "count": lambda store: store.count(),
    "wait": lambda store: store.wait(["q"], 60.0),
}


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # Neo4j's driver drops what it was just opening
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cancelled_at_any_moment_does_not_return(harness: Harness, name: str) -> None:
    async def ask() -> None:
        await CALLS[name](harness.store)

    await harness.store.clock()  # there is a connection from now on
    cancelled = 0
    for turns in [*range(TURNS)] * 3:
        asking = asyncio.create_task(ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.cancel():
            await asyncio.wait([asking])
            assert asking.cancelled(), f"cancelled after {turns} turns of the loop, and it went on"
            cancelled += 1
    assert cancelled, "each call was faster than its cancellation: the test proves nothing"

    await enqueued(harness.store)
    assert len(await leased(harness.store)) == 1, "the store works on after that"
