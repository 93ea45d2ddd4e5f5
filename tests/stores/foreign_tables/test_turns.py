"""Turns among tables, and between them and the queues of the store itself."""

from collections import Counter
from typing import Any

import pytest
from support.product import Product

from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import enqueued

pytestmark = pytest.mark.anyio
IDLE = [f"idle-{number}" for number in range(3)]


async def filled(shop: Product, store: Store) -> None:
    for table in ("jobs", "asr_jobs"):
        for _ in range(12):
            await shop.add(table)
    for queue in ("mail", "bulk"):
        await enqueued(store, 12, queue=queue)


def shares(*names: str, **how: Any) -> dict[str, Share]:
    return {name: Share(20.0, 20, **how) for name in names}


async def brought(store: Store, asked: dict[str, Share], limit: int) -> dict[str, int]:
    return dict(Counter(job.queue for job in await store.lease(asked, limit, "w")))


async def test_tables_and_queues_take_fair_turns(shop: Product, store: Store) -> None:
    await filled(shop, store)
    asked = shares("jobs", "asr_jobs", "mail", "bulk", step=1.0)

    assert await brought(store, asked, 8) == {"jobs": 2, "asr_jobs": 2, "mail": 2, "bulk": 2}


async def test_a_table_has_its_weight(shop: Product, store: Store) -> None:
    await filled(shop, store)
    asked = shares("mail", step=1.0) | shares("jobs", step=0.25)

    assert await brought(store, asked, 10) == {"jobs": 8, "mail": 2}


async def test_in_strict_order_a_table_goes_before_queues_and_they_before_the_next(
    shop: Product, store: Store
) -> None:
    await filled(shop, store)
    asked: dict[str, Share] = {}
    for turn, name in enumerate(("jobs", "mail", "asr_jobs", "bulk")):
        asked |= shares(name, turn=float(turn))

    assert await brought(store, asked, 10) == {"jobs": 10}
    assert await brought(store, asked, 20) == {"jobs": 2, "mail": 12, "asr_jobs": 6}
    assert await brought(store, asked, 20) == {"asr_jobs": 6, "bulk": 12}


async def test_what_some_leave_goes_to_the_others_and_idle_queues_have_no_turns(
    shop: Product, store: Store
) -> None:
    await shop.add("jobs")
    await enqueued(store, 12, queue="mail")
    for _ in range(12):
        await shop.add("asr_jobs")
    asked = shares("jobs", "asr_jobs", "mail", *IDLE, step=1.0)

    first = await brought(store, asked, 9)
    assert first["jobs"] == 1
    assert {first["asr_jobs"], first["mail"]} in ({4}, {3, 5})
    assert (await brought(store, asked, 20)).keys() == {"asr_jobs", "mail"}
    assert await brought(store, asked, 20) == {}
