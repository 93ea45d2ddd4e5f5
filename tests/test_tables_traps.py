"""Tables of others: what a reviewer with bad intentions found."""

import asyncio
import json
from typing import Any

import pytest
from support.postgres import Postgres
from support.product import TABLES, OldWorker, Product, product, recovery, tables, taken, types
from support.sessions import session
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import (
    ConfigError,
    Filter,
    Jobs,
    Reaper,
    SchemaError,
    StoreUnavailable,
    Unstuck,
    current_job,
    open_store,
)
from unstuck.model import Beat, Ref, Settled, Verdict, Worker, completed, retried
from unstuck.profiles import pipeline
from unstuck.store import Share
from unstuck.stores import open_tables
from unstuck.testing.conformance.given import new, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("postgres_server", ["15"], indirect=True)]


async def test_a_table_that_is_gone_keeps_no_other_queue_from_its_work(shop: Product) -> None:
    app, done = Unstuck(shop.url + TABLES), []
    for table in ("jobs", "asr_jobs"):
        app.queue(table, **pipeline())
        app.task(name=table, queue=table)(_nothing)

    @app.task(queue="mail")
    async def send(number: int) -> None:
        done.append(number)

    await shop.add("asr_jobs")
    async with app, at_work(app):
        await shop.say("ALTER TABLE jobs RENAME TO moved")
        for number in range(5):
            await send.enqueue(number)
        await until_async(lambda: len(done) == 5, 10, "the mail to be sent")
        jobs = (await app.jobs()).store

        async def finished() -> bool:
            return await shop.say("SELECT status FROM asr_jobs") == [("done",)]

        await until_async(finished, 10, "the row of the other table to end")
        await shop.say("ALTER TABLE moved RENAME TO jobs")
        id_ = await shop.add()

        async def served() -> bool:
            return await shop.status(id_) == "done"

        await until_async(served, 10, "the table to be served again")
        assert [of.processing for of in await jobs.count()] == [0, 0, 0]


async def _nothing(row: dict[str, Any]) -> None:
    """A handler that is content."""


async def test_beats_and_ends_of_others_are_written_although_one_table_is_gone(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        for table in ("jobs", "asr_jobs"):
            await shop.add(table)
        await store.enqueue([new(queue="mail")])
        held = [
            *await taken(store),
            *await taken(store, table="asr_jobs"),
            *await store.lease({"mail": Share(9, 1)}, 1, "w"),
        ]
        await shop.say("ALTER TABLE jobs RENAME TO moved")

        pulse = await store.heartbeat(
            Worker(id="w", queues=("jobs", "asr_jobs")), [Beat(job.lease, 300) for job in held]
        )
        assert pulse.verdicts == {job.lease: Verdict.HELD for job in held[1:]}
        outcomes = [completed(job.lease) for job in held]
        with pytest.raises(SchemaError, match="jobs"):
            await store.settle(outcomes)
        await shop.say("ALTER TABLE moved RENAME TO jobs")
        assert await store.settle(outcomes) == [Settled.APPLIED, Settled.REPEATED, Settled.REPEATED]


async def test_a_settle_looks_again_at_a_table_that_lost_a_column(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add()
        [job] = await taken(store)
        await shop.say("ALTER TABLE jobs DROP COLUMN fail_reason")
        with pytest.raises(SchemaError, match="table 'jobs' is not what it was"):
            await store.settle([completed(job.lease)])
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


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


async def test_a_row_that_an_operator_put_back_begins_anew(shop: Product) -> None:
    id_ = await shop.stuck(attempt_count=1)
    for attempt in (2, 3, None):
        await recovery(shop)
        if attempt:
            await claimed(shop, attempt)
    assert await shop.status(id_) == "failed"
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        assert await Jobs(store).retry(Filter(queue="jobs", dead=True)) == 1
    await claimed(shop, 1)

    assert (await recovery(shop))[0] == ["reaper:requeued"]
    assert (await shop.row(id_))["attempt_count"] == 1


async def claimed(shop: Product, attempt: int) -> None:
    """Somebody claims all rows, counts, and dies."""
    await shop.say(
        "UPDATE jobs SET status = 'processing', attempt_count = %s, lease_expires_at = now() - interval '1 s',"
        " last_heartbeat_at = now() - interval '9 s'",
        attempt,
    )


async def test_a_row_that_was_given_a_lease_lives_as_long_as_its_old_worker_shows_signs(
    shop: Product,
) -> None:
    id_ = await shop.add(created_at=-90_000, updated_at=-90_000)
    with OldWorker(shop.url) as worker:
        worker.take()
        await recovery(shop)
        await shop.age(3700)
        await shop.say("UPDATE jobs SET progress = 10, updated_at = now()")  # it knows no other way
        assert await recovery(shop) == ([], ())
        left = await shop.left(id_, "lease_expires_at")
        assert left is not None
        assert left > 3500

        await shop.say(
            "UPDATE jobs SET status = 'queued', updated_at = now() - interval '9 h'"
        )  # the lease stays behind
        await shop.age(3700)
        worker.take()
        await shop.say("UPDATE jobs SET updated_at = now()")
        assert await recovery(shop) == ([], ())
    await shop.age(4000)
    await shop.say("UPDATE jobs SET updated_at = now() - interval '9 h'")
    assert (await recovery(shop))[0] == ["reaper:requeued"]


async def test_one_row_that_the_table_refuses_does_not_keep_the_others_stuck(shop: Product) -> None:
    await shop.say("ALTER TABLE asr_jobs ADD CHECK (status <> 'failed')")
    spent = await shop.stuck("asr_jobs", attempt_count=3)
    others = [await shop.stuck("asr_jobs") for _ in range(3)]

    done, [told] = await recovery(shop, "asr_jobs")

    assert done == ["reaper:requeued"] * 3
    assert told.startswith(f"table asr_jobs: row {spent}: new row for relation")
    assert [await shop.status(id_, "asr_jobs") for id_ in [spent, *others]] == ["processing"] + ["queued"] * 3


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


async def test_a_stage_that_is_one_of_a_few_words_does_not_stop_the_beats(shop: Product) -> None:
    await shop.say(
        "CREATE TYPE stages AS ENUM ('clip', 'asr'); ALTER TABLE jobs ALTER stage TYPE stages USING NULL"
    )
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add(expected_duration_ms=100_000)
        [job] = await taken(store)
        pulse = await store.heartbeat(Worker(id="w"), [Beat(job.lease, 20.0, stage="burnin")])
    assert pulse.verdicts == {job.lease: Verdict.HELD}
    left = await shop.left(job.id, "lease_expires_at")
    assert left is not None
    assert 790 < left <= 800


async def test_a_table_that_is_locked_as_a_whole_does_not_keep_others_from_recovery(shop: Product) -> None:
    await shop.say("CREATE TABLE z_jobs (LIKE jobs INCLUDING ALL)")
    first, last = await shop.stuck("asr_jobs"), await shop.stuck("z_jobs")
    async with session(shop.url, name="deploy") as other:
        await other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        async with tables(shop.url, "asr_jobs", "jobs", "z_jobs") as opened:
            reaper = Reaper(opened)
            done = {outcome.lease.id for outcome in await asyncio.wait_for(reaper.recover(), 10)}
            assert (done, opened.tally.total()) == ({first, last}, 2)
            assert "deploy) has locked jobs, idle in its transaction" in reaper.troubles[0]


async def test_a_beat_in_the_far_future_does_not_keep_a_row_for_ever(shop: Product) -> None:
    await shop.stuck(last_heartbeat_at=9e9)

    assert (await recovery(shop))[0] == ["reaper:requeued"]


async def test_follow_ups_that_cannot_be_fail_their_row_and_not_the_worker(shop: Product) -> None:
    app = Unstuck(shop.url + TABLES)
    listen = app.task(name="asr_jobs", queue="asr_jobs")(_nothing)

    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        current_job().then(listen.call({}))

    id_ = await shop.add()
    async with app:
        await burst(app)
    row = await shop.row(id_)
    assert (row["status"], row["fail_code"]) == ("failed", "ConfigError")
    assert "insert a row there" in row["error_message"]


async def test_a_late_outcome_is_not_taken_for_what_a_reaper_did(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add()
        [job] = await taken(store)
        await shop.say(
            "UPDATE jobs SET lease_expires_at = now() - interval '1 s', last_heartbeat_at = now() - interval '9 s'"
        )
        await recovery(shop)
        assert await store.settle([retried(job.lease, trouble(), 5.0)]) == [Settled.LOST]


async def test_a_holder_may_have_any_name(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add()
        [job] = await taken(store, owner="a#b#7")
        assert (await store.heartbeat(Worker(id="a#b#7", queues=("jobs",)), [])).strangers == [job.lease]
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_numbers_are_true(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        jobs = Jobs(store)
        await jobs.cancel([await shop.add()])
        await shop.stuck(lease_expires_at=-60, last_heartbeat_at=-1)
        [counts] = [of for of in await jobs.counts() if of.queue == "jobs"]
    assert (counts.failed, counts.cancelled, counts.processing, counts.expired) == (1, 1, 1, 0)


async def test_one_table_that_is_missing_does_not_hide_the_others(shop: Product) -> None:
    await shop.stuck()
    async with tables(shop.url, "gone", "jobs") as opened:
        assert [of.queue for of in await opened.count()] == ["jobs"]
        assert "there is no table 'gone'" in json.dumps([finding.what for finding in await opened.checkup()])
    with pytest.raises(ConfigError, match="together with the URL"):
        Reaper(opened, tables=["jobs"])


async def test_ids_that_cannot_be_are_found_nowhere(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        assert (await store.find(Filter(ids=("no uuid",)))).jobs == []
        assert await store.cancel([Ref("jobs", "no uuid")]) == 0


async def test_a_row_whose_worker_was_lost_runs_alone_the_next_time(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        id_ = await shop.stuck()
        await recovery(shop)
        await shop.say("UPDATE jobs SET next_earliest_run_at = now()")
        [job] = await taken(store)
    assert (job.id, job.attempts, job.crashes) == (id_, 2, 1)


async def test_workers_lost_before_an_operator_put_a_row_back_do_not_count(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.stuck()
        await recovery(shop)
        await shop.say("UPDATE jobs SET status = 'failed'")
        assert await store.requeue(Filter(queue="jobs")) == 1
        [job] = await taken(store)
        await store.settle([retried(job.lease, trouble(), 0.0)])
        [job] = await taken(store)
    assert (job.attempts, job.crashes) == (2, 0)


async def test_a_server_that_is_away_is_not_a_trouble_of_its_tables(postgres_server: Postgres) -> None:
    async with product(postgres_server, stays=True) as shop:
        url = shop.url
    async with tables(url) as opened:
        await Reaper(opened).recover()
        await asyncio.to_thread(postgres_server.stop)
        with pytest.raises(StoreUnavailable):
            await opened.reap(lambda job: completed(job.lease), 10)
