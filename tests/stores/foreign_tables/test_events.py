"""Events of tables whose product's table of events does not take them."""

import logging
import re

import pytest
from support.product import FOREIGN_KEY, TABLES, Product, tables, taken, types

from unstuck import Reaper, open_store
from unstuck.protocol.job import Ref
from unstuck.protocol.outcome import Settled, completed

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "harm",
    [
        FOREIGN_KEY,  # and NOT NULL: there is no way to write an event of asr_jobs
        "ALTER TABLE job_events ADD CHECK (type NOT LIKE 'reaper:%')",
        "ALTER TABLE job_events ADD worth integer NOT NULL",
        "DROP TABLE job_events",
    ],
)
async def test_rows_are_recovered_even_if_their_events_cannot_be_written_and_the_log_has_them(
    shop: Product, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    caplog.set_level(logging.INFO, "unstuck.reaper")
    await shop.say(harm)

    async with tables(shop.url) as opened:
        reaper = Reaper(opened)
        ids = []
        for _ in range(3):
            ids.append(await shop.stuck("asr_jobs"))
            await reaper.recover()

    assert {(await shop.row(id_, "asr_jobs"))["status"] for id_ in ids} == {"queued"}
    [told] = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert told.startswith("events of table asr_jobs cannot be written to job_events: ")
    assert ("unstuck init --table asr_jobs" in told) == ("CHECK" not in harm)
    logged = [record.message for record in caplog.records if "that could not be written" in record.message]
    for id_, line in zip(ids, logged, strict=True):
        assert f'"job_id": "{id_}"' in line


async def test_init_makes_a_table_for_the_events_that_the_product_s_takes_none_of(shop: Product) -> None:
    await shop.say(FOREIGN_KEY)
    async with tables(shop.url) as opened:
        shown = "\n".join(await opened.preparation())
        await opened.prepare()
        again = await opened.preparation()
        reaper = Reaper(opened)
        clip, asr = await shop.stuck(), await shop.stuck("asr_jobs")
        await reaper.recover()
        findings = [finding.what for finding in await opened.checkup()]

    assert 'CREATE TABLE IF NOT EXISTS "unstuck_job_events"' in shown
    assert (
        'run this instead of what follows: ALTER TABLE "job_events" ALTER COLUMN "job_id" DROP NOT NULL'
        in shown
    )
    assert again == []
    assert types(await shop.events(clip)) == ["reaper:requeued"]
    found = await shop.say("SELECT job_id, data ->> 'type', data ->> 'table' FROM unstuck_job_events")
    assert found == [(asr, "reaper:requeued", "asr_jobs")]
    assert [told for told in findings if "events of table asr_jobs are in unstuck_job_events" in told]
    assert not [told for told in findings if "cannot be written" in told]


async def test_the_way_that_init_names_lets_events_into_the_product_s_table(shop: Product) -> None:
    await shop.say(FOREIGN_KEY)
    async with tables(shop.url) as opened:
        shown = "\n".join(await opened.preparation())
        way = re.search(r"what follows: (.*);", shown)
        assert way
        await shop.say(way[1])

        assert not [sql for sql in await opened.preparation() if "CREATE TABLE" in sql]
        await shop.stuck("asr_jobs")
        await Reaper(opened).recover()

    assert await shop.say("SELECT job_id, data ->> 'table' FROM job_events") == [(None, "asr_jobs")]


async def test_a_worker_s_events_are_found_in_the_table_that_init_made(shop: Product) -> None:
    await shop.say(FOREIGN_KEY)
    async with tables(shop.url) as opened:
        await opened.prepare()
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        id_ = await shop.add("asr_jobs")
        [job] = await taken(store, table="asr_jobs")
        done = [completed(job.lease)]

        assert [await store.settle(done), await store.settle(done)] == [[Settled.APPLIED], [Settled.REPEATED]]
        assert [event.type for event in await store.events(job=Ref("asr_jobs", id_))] == [
            "leased",
            "completed",
        ]


@pytest.mark.parametrize("postgres_server", ["15"], indirect=True)
async def test_events_that_may_not_be_read_do_not_stop_a_recovery(shop: Product) -> None:
    await shop.stuck()
    role = f"role_{shop.url.rpartition('_')[2]}"
    await shop.say(
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT SELECT, UPDATE ON jobs TO {role}; GRANT INSERT ON job_events TO {role}"
    )
    url = shop.url.replace("//postgres:", f"//{role}:").replace(shop.url.split(":")[2].split("@")[0], "x")

    async with tables(url, "jobs") as opened:
        [outcome] = await Reaper(opened).recover()
    assert types(await shop.events(outcome.lease.id)) == ["reaper:requeued"]
