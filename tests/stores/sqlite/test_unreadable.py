"""A record in a file that somebody edited so that it cannot be read any more, as operators see it."""

import pytest
from support.unreadable import unreadable_is_told

from unstuck import Category, Filter, Unstuck, Worker
from unstuck.protocol.outcome import failed
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, trouble

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("damage", ["payload = '{oops'", "backoff = '7'"])
async def test_it_is_left_out_of_listings_and_named_where_it_is_asked_for(
    harness: SQLiteHarness, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad, last = await enqueued(harness.store, 3)
    harness.rows(f"UPDATE job SET {damage} WHERE id = ?", (bad.id,))

    await unreadable_is_told(harness.store, [last, first], bad, caplog)


async def test_one_that_the_first_page_cannot_show_does_not_hide_those_behind_it(
    harness: SQLiteHarness,
) -> None:
    fine, bad = await enqueued(harness.store, 2)
    harness.rows("UPDATE job SET payload = '{oops' WHERE id = ?", (bad.id,))
    both = Filter(ids=(bad.id, fine.id))

    page = await harness.store.find(both, limit=1)
    rest = await harness.store.find(both, limit=1, cursor=page.cursor)

    assert ([job.ref for job in page.jobs], [job.ref for job in rest.jobs]) == ([], [fine])


@pytest.mark.parametrize("damage", ["{oops", ""])
async def test_an_error_that_somebody_edited_does_not_keep_others_from_being_found_by_theirs(
    harness: SQLiteHarness, damage: str
) -> None:
    await enqueued(harness.store, 2)
    good, bad = await leased(harness.store, 2)
    await harness.store.settle([failed(job.lease, trouble()) for job in (good, bad)])
    harness.rows("UPDATE job SET error = ? WHERE id = ?", (damage, bad.id))

    for which in (Filter(code="trouble"), Filter(category=Category.TRANSIENT, dead=True)):
        assert [job.ref for job in (await harness.store.find(which)).jobs] == [good.ref]
    assert await harness.store.requeue(Filter(code="trouble")) == 1
    assert [job.ref for job in await leased(harness.store)] == [good.ref]


async def test_a_handler_that_asks_for_it_fails_alone(harness: SQLiteHarness, app: Unstuck) -> None:
    [bad] = await enqueued(harness.store)
    harness.rows("UPDATE job SET payload = '{oops' WHERE id = ?", (bad.id,))

    @app.task(queue="mail")
    async def follow() -> str:
        return str((await app.job(bad.id)).status)

    handle = await follow.enqueue()
    await Worker(app, burst=True).run()

    job = await handle.job()
    assert job.error is not None
    assert (job.error.category, job.error.code) == (Category.PERMANENT, "UnreadableJob")
    assert [of.paused for of in await harness.store.count()] == [None, None]


async def test_a_record_that_is_not_json_has_no_value_and_can_be_replaced(harness: SQLiteHarness) -> None:
    for name in ("bad", "fine"):
        await harness.store.keep("k", name, name)
    harness.rows("UPDATE record SET value = '{oops' WHERE name = 'bad'")

    bad, fine = await harness.store.kept("k")
    assert (bad.value, fine.value) == (None, "fine")
    assert (await harness.store.keep("k", "bad", "new", bad.version)).applied
