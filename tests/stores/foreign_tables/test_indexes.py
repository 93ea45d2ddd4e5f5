"""The index that init makes on a table of others."""

import asyncio

import pytest
from support.product import Product
from support.sessions import session

from unstuck.stores import open_tables

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("postgres_server", ["15"], indirect=True)]


async def test_init_leaves_no_unfinished_index_behind_a_long_transaction(shop: Product) -> None:
    async with session(shop.url) as long, open_tables(f"{shop.url}?table=jobs") as opened:
        await long.execute("INSERT INTO jobs DEFAULT VALUES")
        preparing = asyncio.create_task(opened.prepare())
        await asyncio.sleep(2.5)  # longer than it waits for a lock that others would wait behind
        await long.commit()
        await asyncio.wait_for(preparing, 20)
    assert await shop.say("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
    assert await shop.say("SELECT 1 FROM pg_class WHERE relname = 'unstuck_jobs_due'") == [(1,)]


async def test_an_index_of_the_same_name_in_another_schema_is_left_alone(shop: Product) -> None:
    await shop.say("CREATE SCHEMA media; CREATE TABLE media.jobs (LIKE jobs INCLUDING ALL)")
    async with open_tables(f"{shop.url}?table=jobs&table=media.jobs") as opened:
        await opened.prepare()
        await shop.say(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'media.unstuck_jobs_due'::regclass"
        )
        await opened.prepare()
    found = "SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname = 'unstuck_jobs_due' AND indisvalid"
    assert await shop.say(found) == [(2,)]
