"""twin: the same data through connections of its own."""

from __future__ import annotations

import gc

import pytest

from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.outcome import completed
from unstuck.testing.conformance.given import enqueued, leased, look
from unstuck.testing.harnesses.harness import Harness


async def test_a_twin_sees_and_changes_the_same_jobs(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)

    async with harness.store.twin() as twin:
        assert (await look(twin, ref)).ref == ref
        [job] = await leased(twin)
        await harness.store.settle([completed(job.lease)])
        assert (await look(twin, ref)).settled == "completed"


async def test_closing_a_twin_leaves_the_store_open_and_the_other_way_round(harness: Harness) -> None:
    store = harness.store.twin()
    async with store, store.twin() as twin:
        await enqueued(twin)
    async with harness.store.twin() as twin:
        async with twin.twin():
            await enqueued(twin)
        await enqueued(twin)

    assert len(await leased(harness.store, 9)) == 3


async def test_a_twin_is_not_open_until_it_is_entered(harness: Harness) -> None:
    with pytest.raises(StoreUnavailable):
        await enqueued(harness.store.twin())


async def test_opening_and_closing_again_and_again_leaves_nothing_behind(harness: Harness) -> None:
    async def objects(times: int) -> int:
        for _ in range(times):
            async with harness.store.twin() as twin:
                await twin.migrate()
                await twin.count()
        gc.collect()
        return len(gc.get_objects())

    before = await objects(3)

    # Not many per opening: a driver's timers that were cancelled stay until their time has come.
    assert await objects(20) - before < 20 * 12
