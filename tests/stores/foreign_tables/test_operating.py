"""Tables of others as queues among ours: what operators see and change, pauses, limits, and tables that change."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.product import TABLES, Product, recovery, taken, types
from support.sessions import session
from support.waiting import until_async

from unstuck import ConfigError, Jobs, Reaper, SchemaError, open_store
from unstuck.operations.doctor import doctor
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Lease, Ref, Status
from unstuck.protocol.leases import Beat, Share, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, released, retried
from unstuck.protocol.store import Store
from unstuck.stores.postgres.foreign.store import AdoptingStore
from unstuck.testing.conformance.given import new, trouble

pytestmark = pytest.mark.anyio
on_one_server = pytest.mark.parametrize("postgres_server", ["15"], indirect=True)
KINDS = ("unknown", "timeout", "FFMPEG", "cancelled")


async def test_operators_see_and_change_rows_as_they_do_jobs(shop: Product, store: Store) -> None:
    jobs = Jobs(store)
    ids = [await shop.add(created_at=-60 + number) for number in range(4)]
    [first] = await taken(store)
    assert first.id == ids[0]
    assert (await jobs.get(ids[0])).owner == "w"
    assert await jobs.cancel(ids[:2]) == 2
    pulse = await store.heartbeat(WorkerInfo(id="w", queues=("jobs",)), [Beat(first.lease, 300.0)])
    assert pulse.verdicts == {first.lease: Verdict.CANCELLED}

    [counts] = [of for of in await jobs.counts() if of.queue == "jobs"]
    assert (counts.pending, counts.processing, counts.failed) == (2, 0, 2)
    page = await jobs.find(Filter(queue="jobs"), 3)
    rest = await jobs.find(Filter(queue="jobs"), 3, page.cursor)
    assert [job.id for job in [*page.jobs, *rest.jobs]] == ids[::-1]
    assert await jobs.retry_failed_jobs("jobs") == 0  # nobody wants those back
    everywhere = Filter(status=Status.FAILED)
    assert (await jobs.matching(everywhere), await jobs.retry(everywhere)) == ({}, 0)  # no table is meant
    assert await jobs.retry(Filter(ids=(ids[1],))) == 1
    assert await jobs.retry(Filter(queue="jobs", status=Status.FAILED)) == 1
    assert types(await shop.events(ids[0])) == ["leased", "cancelled", "requeued"]
    assert [event.type for event in await jobs.events(job=first.ref)] == ["leased", "cancelled", "requeued"]


async def test_only_what_is_not_finished_is_cancelled_and_only_what_is_finished_is_put_back(
    shop: Product, store: Store
) -> None:
    ids = {word: await shop.add(status=word) for word in ("queued", "processing", "done", "failed")}
    before = {word: await shop.row(id_) for word, id_ in ids.items()}

    assert await store.cancel([Ref("jobs", ids["done"]), Ref("jobs", ids["failed"])]) == 0
    assert {word: await shop.row(id_) for word, id_ in ids.items()} == before
    assert await store.requeue(Filter(queue="jobs")) == 2
    assert [await shop.status(id_) for id_ in ids.values()] == ["queued", "processing", "queued", "queued"]


async def test_totals_count_every_row_that_ended(shop: Product, store: Store) -> None:
    for _ in range(4):
        await shop.add()
    first, second, third, fourth = await taken(store, 4)

    await store.settle([completed(first.lease), completed(second.lease), released(third.lease)])
    await store.settle([completed(fourth.lease)])
    assert await store.cancel([third.ref, fourth.ref]) == 1

    [counts] = [of for of in await store.count() if of.queue == "jobs"]
    assert counts.totals == {"completed": 3, "released": 1, "cancelled": 1}


async def test_a_row_that_failed_gives_the_reason_and_is_found_by_it(shop: Product, store: Store) -> None:
    reaped = {"fail_code": "timeout", "fail_reason": "lease_expired", "error_message": "no beat for 5 min"}
    theirs = {"error_code": "FFMPEG", "error_message": "exit code 1, token=s3cr3tvalue"}
    why: dict[str | None, tuple[str, str, str] | None] = {
        await shop.add(status="failed", **reaped): ("timeout", "lease_expired", "no beat for 5 min"),
        await shop.add(status="failed", **theirs): ("FFMPEG", "", "exit code 1, token=[redacted]"),
        await shop.add(status="failed", fail_reason="oops"): ("unknown", "oops", "oops"),
        await shop.add(status="failed"): ("unknown", "", "the row does not say why"),
        await shop.add(status="done", **reaped): None,  # it went well in the end
    }

    found = (await store.find(Filter(queue="jobs"))).jobs
    told = {job.id: job.error and (job.error.code, job.error.reason, job.error.message) for job in found}
    assert told == why
    [dead] = [one for one in await doctor(store, seconds=0) if "dead letters" in one.what]
    assert "4 dead letters in queue jobs: 2 unknown, " in dead.what
    assert dead.fix.endswith("unstuck retry --code unknown --queue jobs")
    for code, number in zip(KINDS, (2, 1, 1, 0), strict=True):
        assert len((await store.find(Filter(queue="jobs", code=code))).jobs) == number, (
            "what is done has no error"
        )
    retried = [await store.requeue(Filter(queue="jobs", dead=True, code=code)) for code in KINDS]
    assert retried == [2, 1, 1, 0]


async def test_a_row_that_was_cancelled_is_known_as_such(shop: Product, store: Store) -> None:
    await shop.say("ALTER TABLE jobs DROP COLUMN fail_code")  # one of two that say so is enough
    id_ = await shop.add()
    await store.cancel([Ref("jobs", id_)])

    assert (await Jobs(store).get(id_)).cancelled
    [counts] = [of for of in await store.count() if of.queue == "jobs"]
    assert (counts.failed, counts.cancelled) == (1, 1)
    assert await store.requeue(Filter(queue="jobs", dead=True)) == 0


@pytest.mark.parametrize("type_", ["timestamptz", "timestamp"])
async def test_rows_that_wait_can_be_given_another_time(shop: Product, store: Store, type_: str) -> None:
    await shop.say(f"ALTER TABLE jobs ALTER next_earliest_run_at TYPE {type_}")
    jobs = Jobs(store)
    ids = [await shop.add(status=word) for word in ("queued", "processing", "done")]
    await store.enqueue([new(queue="mail", id="ours")])
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    assert await jobs.edit([*ids, "ours"], run_at=later) == 2

    assert [(await jobs.get(id_)).run_at == later for id_ in (*ids, "ours")] == [True, False, False, True]
    assert types(await shop.events(ids[0])) == ["edited"]
    assert await taken(store) == []
    assert await jobs.edit(ids, run_at=later - timedelta(hours=2)) == 1
    assert [job.id for job in await taken(store)] == [ids[0]]


async def test_what_a_row_has_no_column_for_is_refused_before_anything_is_edited(
    shop: Product, store: Store
) -> None:
    id_, later = await shop.add(), datetime.now(UTC) + timedelta(hours=1)
    await store.enqueue([new(queue="mail", id="ours")])
    before = await store.find(Filter(ids=("ours",), queue="mail"))

    with pytest.raises(ConfigError, match="rows of table jobs have no priority: give them another time"):
        await Jobs(store).edit([id_, "ours"], priority=3, run_at=later)
    await shop.say("ALTER TABLE jobs DROP COLUMN next_earliest_run_at")
    async with open_store(shop.url + TABLES) as anew:
        with pytest.raises(ConfigError, match="table jobs has no column next_earliest_run_at"):
            await Jobs(anew).edit([id_, "ours"], run_at=later)
    assert await store.find(Filter(ids=("ours",), queue="mail")) == before


async def test_a_pause_stops_claims_and_a_limit_bounds_what_runs(shop: Product, store: Store) -> None:
    for _ in range(5):
        await shop.add()
    await store.pause("jobs", "the disk is full")
    assert await taken(store, 5) == []
    await store.pause("jobs", None)

    share = {"jobs": Share(20.0, 5, 2)}
    found = await asyncio.gather(*(store.lease(share, 5, f"w{number}") for number in range(4)))
    assert sum(len(jobs) for jobs in found) == 2


async def test_who_must_count_what_runs_waits_for_those_who_are_taking_some(
    shop: Product, store: Store
) -> None:
    await shop.add()
    assert len(await taken(store)) == 1  # the queue is known from now on
    await shop.add()
    await shop.add()
    async with session(shop.url) as other:  # as somebody else who leases without a limit
        await other.execute("SELECT 1 FROM unstuck.queues WHERE name = 'jobs' FOR SHARE")
        limited = asyncio.create_task(store.lease({"jobs": Share(20.0, 5, 2)}, 5, "w"))
        assert len(await asyncio.wait_for(taken(store), 20)) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(limited), 0.2)
        await other.commit()
    assert await asyncio.wait_for(limited, 20) == []  # two run meanwhile


async def test_what_happened_to_a_row_of_the_same_id_in_another_table_is_not_shown(
    shop: Product, store: Store
) -> None:
    id_ = await shop.add()
    await shop.add("asr_jobs", id=id_)
    [row], [namesake] = await taken(store), await taken(store, table="asr_jobs")
    await store.settle([completed(row.lease), released(namesake.lease)])

    assert [event.type for event in await store.events(job=row.ref)] == ["leased", "completed"]
    assert [event.type for event in await store.events(job=namesake.ref)] == ["leased", "released"]


async def test_a_wait_ends_when_a_row_becomes_due_and_not_for_a_table_that_is_paused(
    shop: Product, store: Store
) -> None:
    await store.pause("asr_jobs", "for a while")
    await shop.add("asr_jobs")
    began = time.monotonic()
    await store.wait(["asr_jobs"], 0.2)
    assert time.monotonic() - began > 0.15

    await shop.add(next_earliest_run_at=0.5)
    await asyncio.wait_for(store.wait(["jobs"], 60.0), 10)
    assert len(await taken(store)) == 1


async def test_rows_are_added_by_those_who_own_the_table(store: Store) -> None:
    with pytest.raises(
        ConfigError, match=r"queue 'jobs' is the table jobs: insert a row there, status = 'queued'"
    ):
        await store.enqueue([new(queue="jobs")])
    assert await store.delete(Filter(queue="jobs")) == 0


async def test_leases_that_a_worker_does_not_know_of_are_returned_to_it(shop: Product, store: Store) -> None:
    id_ = await shop.add()
    [job] = await taken(store)

    pulse = await store.heartbeat(WorkerInfo(id="w", queues=("jobs",)), [])
    assert pulse.strangers == [Lease("jobs", id_, job.fence)]
    assert (await store.heartbeat(WorkerInfo(id="other", queues=("jobs",)), [])).strangers == []


async def test_the_rows_of_a_dead_worker_are_ended_at_once(shop: Product, store: Store) -> None:
    mine, other = await shop.add(), await shop.add()
    await taken(store, owner="w1")
    await taken(store, owner="w2")

    [outcome] = await Reaper(store).recover(of="w1", cause="killed by signal 9")

    assert (outcome.lease.id, (await shop.row(other))["status"]) == (mine, "processing")
    assert types(await shop.events(mine)) == ["leased", "crash:requeued"]
    await shop.say("UPDATE jobs SET next_earliest_run_at = now()")
    assert [(job.id, job.attempts, job.crashes) for job in await taken(store)] == [(mine, 2, 1)]


async def test_a_row_of_a_dead_worker_that_somebody_has_locked_is_left_to_him(
    shop: Product, store: Store
) -> None:
    locked, other = await shop.add(created_at=-2), await shop.add(created_at=-1)
    await taken(store, 2)
    async with session(shop.url) as somebody:
        await somebody.execute("SELECT 1 FROM jobs WHERE id::text = %s FOR UPDATE", (locked,))
        ended = await asyncio.wait_for(Reaper(store).recover(of="w", cause="killed by signal 9"), 10)

    assert [outcome.lease.id for outcome in ended] == [other]


async def test_a_pause_that_commits_while_a_claim_is_under_way_is_obeyed_by_it(
    shop: Product, store: Store
) -> None:
    await taken(store)  # the queue is known from now on
    await shop.add()
    async with session(shop.url) as operator:
        await operator.execute("UPDATE unstuck.queues SET paused_at = now(), paused_why = 'stop'")
        claiming = asyncio.create_task(taken(store))

        async def waits() -> list[tuple[object, ...]]:
            return await shop.say("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")

        await until_async(waits, 10, "the claim to wait for the queue's row")
        await operator.commit()

        assert await claiming == []


async def test_a_table_that_lost_a_column_is_reported_and_worked_on_again_when_it_is_back(
    shop: Product, store: Store
) -> None:
    id_ = await shop.add()
    await taken(store)
    await shop.say("ALTER TABLE jobs RENAME locked_by TO holder")
    with pytest.raises(SchemaError, match="locked_by"):
        await taken(store)
    await shop.say("ALTER TABLE jobs RENAME holder TO locked_by")
    await shop.say("UPDATE jobs SET status = 'queued'")
    assert [job.id for job in await taken(store)] == [id_]
    assert isinstance(store, AdoptingStore)


async def test_a_row_that_beats_and_renews_nothing_is_reported_with_both_times(
    shop: Product, store: Store
) -> None:
    hangs = await shop.stuck(locked_by="cutter-1", lease_expires_at=-72_000, last_heartbeat_at=-3)
    await shop.stuck(lease_expires_at=-1800, last_heartbeat_at=-3)  # longer than it said, but not for long
    await shop.stuck(lease_expires_at=-72_000, last_heartbeat_at=-71_000)  # any reaper takes it back
    await shop.stuck(lease_expires_at=600, last_heartbeat_at=-3)

    [told] = [one for one in await store.checkup() if "is not renewed" in one.what]
    assert told.what.startswith(f"row {hangs} of table jobs, held by cutter-1, beat ")
    assert " ago, but its lease ended 20 h ago" in told.what
    assert "the same" not in told.what
    assert "300 s after its last beat" in told.fix
    job = await Jobs(store).get(hangs)
    assert job.heartbeat_at is not None
    assert job.lease_until is not None
    assert 71_000 < (job.heartbeat_at - job.lease_until).total_seconds() < 72_000, "what explain goes by"


@on_one_server
async def test_a_row_that_an_operator_put_back_begins_again(shop: Product) -> None:
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


@on_one_server
async def test_numbers_are_true(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        jobs = Jobs(store)
        await jobs.cancel([await shop.add()])
        await shop.stuck(lease_expires_at=-60, last_heartbeat_at=-1)
        [counts] = [of for of in await jobs.counts() if of.queue == "jobs"]
    assert (counts.failed, counts.cancelled, counts.processing, counts.expired) == (1, 1, 1, 0)


@on_one_server
async def test_ids_that_cannot_be_are_found_nowhere(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        assert (await store.find(Filter(ids=("no uuid",)))).jobs == []
        assert await store.cancel([Ref("jobs", "no uuid")]) == 0


@on_one_server
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


@on_one_server
async def test_records_are_beside_the_tables_and_not_in_them(shop: Product, store: Store) -> None:
    before = await shop.row(id_ := await shop.add())

    kept = await store.keep("k", "n", 1)

    assert kept.applied
    async with open_store(shop.url) as plain:
        assert await plain.kept("k") == await store.kept("k") == [kept.record]
    assert await shop.row(id_) == before
