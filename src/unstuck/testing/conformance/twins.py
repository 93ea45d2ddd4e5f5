"""twin: the same data through connections of its own."""

from __future__ import annotations

import pytest

from unstuck.errors import StoreUnavailable
from unstuck.model import completed
from unstuck.testing.conformance.given import enqueued, leased, look
from unstuck.testing.harness import Harness


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
