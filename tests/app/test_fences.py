"""A fence grows even if the clock went back: whatever gives a job a new one goes on from the old one."""

import pytest

from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.store import Store
from unstuck.testing import PostgresHarness, SQLiteHarness
from unstuck.testing.conformance.given import QUEUE, enqueued, look

pytestmark = pytest.mark.anyio

IN_A_CENTURY = 4_900_000_000_000
SHARES = {
    "plain": Share(60.0, 1),
    "at a time": Share(60.0, 1, at_a_time=9),
    "lanes": Share(60.0, 1, per_lane=9),
}


async def fences(store: Store, share: Share) -> list[int]:
    """Those of a job that is leased, taken over from a living and a dead owner, and cancelled."""
    [job] = await store.lease({QUEUE: share}, 1, "w")
    [taken] = (await store.reclaim(Recovery("reaper", -1.0, 1, of=["w"]))).jobs
    [again] = (await store.reclaim(Recovery("reaper", 60.0, 1))).jobs
    await store.cancel([job.ref])
    return [job.fence, taken.fence, again.fence, (await look(store, job.ref)).fence]


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
async def test_a_fence_grows_though_the_clock_went_back_on_sqlite(
    harness: SQLiteHarness, share: Share
) -> None:
    await enqueued(harness.store, lane="a")
    harness.rows(f"UPDATE job SET fence = {IN_A_CENTURY}")

    assert await fences(harness.store, share) == [IN_A_CENTURY + more for more in (1, 2, 3, 4)]


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
async def test_a_fence_grows_though_the_clock_went_back_on_postgresql(
    on_postgres: PostgresHarness, share: Share
) -> None:
    await enqueued(on_postgres.store, lane="a")
    await on_postgres.rows("UPDATE {schema}.jobs SET fence = %s", (IN_A_CENTURY,))

    assert await fences(on_postgres.store, share) == [IN_A_CENTURY + more for more in (1, 2, 3, 4)]
