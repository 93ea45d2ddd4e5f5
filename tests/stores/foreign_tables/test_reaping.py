"""A reaper over tables that a product made for itself, as they are."""

import asyncio
import re
from datetime import UTC
from typing import Any

import pytest
from support.postgres import Postgres
from support.product import FOREIGN_KEY, TABLES, OldWorker, Product, product, recovery, tables, taken, types
from support.sessions import session

from unstuck import Layout, Reaper, StoreUnavailable, open_store
from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import Outcome, Settled, completed, retried
from unstuck.testing.conformance.given import trouble

pytestmark = pytest.mark.anyio
on_one_server = pytest.mark.parametrize("postgres_server", ["15"], indirect=True)
BY_QUEUE = {
    "QUEUE_MAX_ATTEMPTS": "2", "QUEUE_RETRY_BACKOFF_MS_BASE": "3000", "QUEUE_RETRY_BACKOFF_MS_MAX": "15000",
}  # fmt: skip


async def reap(shop: Product, *named: str | Layout, **how: Any) -> list[Outcome]:
    """One recovery by a reaper that has just begun."""
    async with tables(shop.url, *named) as opened:
        reaper = Reaper(opened, **how)
        done = await reaper.recover()
        assert reaper.troubles == ()
        return done


@pytest.mark.accepts("REAP-010", "REAP-011", "REAP-012")
@pytest.mark.parametrize(("table", "attempts", "step"), [("jobs", 1, 30), ("asr_jobs", 2, 120)])
async def test_a_row_whose_worker_died_is_put_back_and_unlocked_and_waits(
    shop: Product, table: str, attempts: int, step: int
) -> None:
    id_ = await shop.stuck(table, attempt_count=attempts)

    assert [outcome.lease.id for outcome in await reap(shop)] == [id_]
    row = await shop.row(id_, table)
    assert (row["status"], row["attempt_count"], row["max_attempts"]) == ("queued", attempts, 3)
    assert (row["locked_by"], row["lease_expires_at"], row["last_heartbeat_at"]) == (None, None, None)
    assert (row["fail_code"], row["error_code"]) == (None, None)
    assert step <= await shop.span(id_, "next_earliest_run_at", "updated_at", table) <= 1.2 * step


@pytest.mark.accepts("REAP-020", "REAP-021", "REAP-022")
@pytest.mark.parametrize("table", ["jobs", "asr_jobs"])
@pytest.mark.parametrize("attempts", [3, 4])
async def test_a_row_that_used_up_its_attempts_fails(shop: Product, table: str, attempts: int) -> None:
    id_ = await shop.stuck(table, attempt_count=attempts)
    before = await shop.row(id_, table)

    await reap(shop)

    row = await shop.row(id_, table)
    assert (row["status"], row["fail_code"], row["fail_reason"]) == ("failed", "timeout", "lease_expired")
    assert (row["locked_by"], row["lease_expires_at"], row["last_heartbeat_at"]) == (None, None, None)
    assert (row["error_code"], row["attempt_count"]) == (
        "timeout",
        attempts,
    )  # what the product's own API shows
    assert "clipper-1" in row["error_message"]
    assert row["updated_at"] > before["updated_at"]


@pytest.mark.accepts("REAP-013", "REAP-060", "REAP-061")
@pytest.mark.parametrize("table", ["jobs", "asr_jobs"])
async def test_a_row_that_was_put_back_has_one_event_that_gives_the_reason(shop: Product, table: str) -> None:
    id_ = await shop.stuck(table, stage="burnin")

    await reap(shop)

    [event] = await shop.events(id_)
    assert (event["type"], event["table"]) == ("reaper:requeued", table)
    details = event["details"]
    assert (details["reason"], details["attempts"], details["owner"]) == ("lease_expired", 1, "clipper-1")
    assert (details["stage"], details["job_id"]) == ("burnin", id_)
    assert details["at"] > details["lease_until"] > details["heartbeat_at"]
    assert await shop.say("SELECT type FROM job_events") == [("reaper:requeued",)]


@pytest.mark.accepts("REAP-023", "REAP-025")
async def test_a_row_that_failed_has_an_event_with_its_diagnosis_and_an_alert(
    shop: Product, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = await shop.stuck(attempt_count=3, stage="burnin")
    [times] = await shop.say("SELECT last_heartbeat_at, lease_expires_at FROM jobs")
    heard, end = (time.astimezone(UTC) for time in times)

    await reap(shop)

    message = (await shop.row(id_))["error_message"]
    assert (
        message
        == f"worker clipper-1 sent its last heartbeat at {heard:%Y-%m-%d %H:%M:%S} UTC, and its lease ran out"
    )
    told, alert = await shop.events(id_)
    assert (told["type"], alert["type"]) == ("reaper:failed(timeout)", "alert")
    details = told["details"]
    assert (details["worker"], details["stage"], details["attempts"]) == ("clipper-1", "burnin", 3)
    assert (details["heartbeat_at"], details["lease_until"]) == (heard.isoformat(), end.isoformat())
    assert alert["details"]["alert"] == "dead_letter"
    assert f"alert dead_letter: job {id_} of queue jobs" in caplog.text


@pytest.mark.accepts("REAP-050")
async def test_each_time_a_row_waits_longer(shop: Product) -> None:
    id_ = await shop.stuck(max_attempts=4)
    waits = []
    for attempt in (1, 2, 3):
        await shop.say(
            "UPDATE jobs SET status = 'processing', attempt_count = %s, lease_expires_at = now() - interval '1 s',"
            " last_heartbeat_at = now() - interval '9 s'",
            attempt,
        )
        await reap(shop)
        waits.append(await shop.span(id_, "next_earliest_run_at", "updated_at"))

    for wait, step in zip(waits, (30, 120, 600), strict=True):  # never less, and a fifth more at the most
        assert step <= wait <= 1.2 * step


@pytest.mark.accepts("REAP-073", "REAP-074")
@pytest.mark.parametrize(
    ("environ", "steps", "most"),
    [
        ({}, (30, 120, 600), 3),
        (BY_QUEUE, (3, 12, 15), 2),
        (BY_QUEUE | {"JOB_MAX_ATTEMPTS": "4"}, (3, 12, 15), 4),
        (BY_QUEUE | {"JOB_BACKOFF_MS_BASE": "8000"}, (8, 15, 15), 2),
        (BY_QUEUE | {"JOB_BACKOFF_MS_MAX": "40000"}, (3, 12, 40), 2),
    ],
    ids=lambda facts: " ".join(facts) if isinstance(facts, dict) else "",
)
async def test_the_environment_sets_how_long_rows_wait_and_how_often_they_are_tried(
    shop: Product, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], steps: tuple[int, ...], most: int
) -> None:
    for variable, text in environ.items():
        monkeypatch.setenv(variable, text)
    rows = [await shop.stuck(attempt_count=attempt, max_attempts=9) for attempt in (1, 2, 3)]
    unsaid = [await shop.stuck(attempt_count=attempt, max_attempts=None) for attempt in (1, 2, 3, 4)]

    await reap(shop)

    for id_, step in zip(rows, steps, strict=True):
        assert step <= await shop.span(id_, "next_earliest_run_at", "updated_at") <= 1.2 * step
    ends = [await shop.status(id_) for id_ in unsaid]  # these rows do not say how often
    assert ends == ["queued"] * (most - 1) + ["failed"] * (5 - most)


@pytest.mark.parametrize(
    "facts",
    [
        {"lease_expires_at": 60},
        {"lease_expires_at": 3600, "last_heartbeat_at": -3000},
        {"lease_expires_at": -60, "last_heartbeat_at": -1},  # it beats, and renews nothing
        {"status": "queued", "lease_expires_at": -60},
        {"status": "done", "lease_expires_at": -60},
        {"status": "failed", "lease_expires_at": -60},
        {"lease_expires_at": None, "last_heartbeat_at": None},  # a worker of old: see below
    ],
    ids=lambda facts: " ".join(f"{name}={value}" for name, value in facts.items()),
)
@pytest.mark.accepts("REAP-042", "REAP-081")
async def test_a_row_that_nobody_lost_is_left_exactly_as_it_is(shop: Product, facts: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"status": "processing", "locked_by": "clipper-1", "attempt_count": 1}
    id_ = await shop.add(**usual | facts)
    before = await shop.row(id_)

    assert await reap(shop) == []
    assert (await shop.row(id_), await shop.events(id_)) == (before, [])


async def test_a_lease_that_ran_out_is_ended_although_the_row_may_not_run_yet(shop: Product) -> None:
    soon, spent = (
        await shop.stuck(next_earliest_run_at=9000),
        await shop.stuck(next_earliest_run_at=9000, attempt_count=3),
    )

    assert len(await reap(shop)) == 2
    assert ((await shop.row(soon))["status"], (await shop.row(spent))["status"]) == ("queued", "failed")


@pytest.mark.accepts("REAP-001", "REAP-081")
async def test_a_row_without_a_lease_is_given_one_first_and_only_reaped_when_that_ran_out(
    shop: Product,
) -> None:
    id_ = await shop.add(status="processing", created_at=-90_000, updated_at=-4000)
    fresh = await shop.add(status="processing", created_at=-90_000, updated_at=-3000)

    assert await reap(shop) == []
    row, wait = await shop.row(id_), await shop.left(id_, "lease_expires_at")
    assert wait is not None
    assert (row["status"], row["attempt_count"], 3590 < wait <= 3600) == ("processing", 0, True)
    assert types(await shop.events(id_)) == ["reaper:adopted"]
    assert await shop.left(fresh, "lease_expires_at") is None

    assert await reap(shop) == []
    await shop.age(3700)
    assert [outcome.lease.id for outcome in await reap(shop)] == [id_]
    assert types(await shop.events(id_)) == ["reaper:adopted", "reaper:requeued"]
    assert types(await shop.events(fresh)) == ["reaper:adopted"]  # its grace was over meanwhile


async def test_a_row_that_was_given_a_lease_is_safe_while_its_old_worker_beats(shop: Product) -> None:
    id_ = await shop.add(status="processing", created_at=-90_000, updated_at=-4000)
    await reap(shop)
    await shop.age(3700)
    await shop.say("UPDATE jobs SET last_heartbeat_at = now()")

    assert await reap(shop) == []
    await shop.age(200)
    assert await reap(shop) == []
    await shop.age(101)  # 300 seconds after its last beat
    assert [outcome.lease.id for outcome in await reap(shop)] == [id_]


@pytest.mark.accepts("REAP-001")
@pytest.mark.parametrize("end", ["infinity", "9999-01-01"])
async def test_a_lease_that_would_never_end_is_replaced(shop: Product, end: str) -> None:
    id_ = await shop.stuck(last_heartbeat_at=-4000, created_at=-9000, updated_at=-9000)
    await shop.say("UPDATE jobs SET lease_expires_at = %s::timestamptz", end)

    assert await reap(shop) == []
    wait = await shop.left(id_, "lease_expires_at")
    assert wait is not None
    assert 3590 < wait <= 3600
    await shop.age(3700)
    assert [outcome.lease.id for outcome in await reap(shop)] == [id_]
    assert await shop.status(id_) == "queued"


async def test_a_worker_that_does_not_count_does_not_make_a_row_run_for_ever(shop: Product) -> None:
    id_ = await shop.add("asr_jobs", created_at=-90_000, updated_at=-90_000)
    ends = []
    with OldWorker(shop.url) as worker:
        for _ in range(3):
            assert worker.take("asr_jobs") == id_  # and dies
            assert await reap(shop, grace=60.0) == []
            await shop.age(61, "asr_jobs")
            await reap(shop, grace=60.0)
            ends.append((await shop.row(id_, "asr_jobs"))["status"])
            await shop.age(1000, "asr_jobs")

    assert ends == ["queued", "queued", "failed"]
    assert (await shop.row(id_, "asr_jobs"))["attempt_count"] == 3


async def test_a_worker_that_counts_is_not_counted_twice(shop: Product) -> None:
    id_ = await shop.stuck(attempt_count=1)
    await reap(shop)
    await shop.say(
        "UPDATE jobs SET status = 'processing', attempt_count = 2, lease_expires_at = now() - interval '1 s'"
    )

    await reap(shop)

    row = await shop.row(id_)
    assert (row["status"], row["attempt_count"]) == ("queued", 2)


@pytest.mark.accepts("REAP-091")
async def test_a_row_that_somebody_has_locked_is_left_to_him(shop: Product) -> None:
    locked, free = await shop.stuck(), await shop.stuck()
    async with session(shop.url) as other:
        await other.execute("SELECT 1 FROM jobs WHERE id::text = %s FOR UPDATE", [locked])

        done = await asyncio.wait_for(reap(shop), 20)
        assert [outcome.lease.id for outcome in done] == [free]
        await other.execute(
            "UPDATE jobs SET lease_expires_at = now() + interval '5 min' WHERE id::text = %s", [locked]
        )
        await other.commit()
    assert await reap(shop) == []  # it was renewed


@pytest.mark.accepts("REAP-090")
async def test_state_and_event_are_one_step(shop: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = await shop.stuck()
    before = await shop.row(id_)

    def torn(*_: Any) -> Any:
        raise RuntimeError("the reaper dies between the two")

    monkeypatch.setattr("unstuck.stores.postgres.foreign.reaping.add_events", torn)
    async with tables(shop.url, "jobs") as opened:
        reaper = Reaper(opened)
        assert await reaper.recover() == []
    assert reaper.troubles == ("table jobs: the reaper dies between the two",)
    assert (await shop.row(id_), await shop.events(id_)) == (before, [])


async def test_a_reaper_knows_when_the_next_lease_ends(shop: Product) -> None:
    await shop.stuck(lease_expires_at=500)
    await shop.stuck("asr_jobs", lease_expires_at=100)
    await shop.stuck(lease_expires_at=-1)
    async with tables(shop.url) as opened:
        reaper = Reaper(opened)
        await reaper.recover()

    assert reaper._next_end is not None
    assert 90 < reaper._next_end <= 100


async def test_rows_that_cannot_be_ended_now_are_not_the_next_to_end(shop: Product) -> None:
    """Or a reaper that sleeps until then would not sleep at all."""
    locked = await shop.stuck()
    endless = await shop.stuck(last_heartbeat_at=-5)
    await shop.say("UPDATE jobs SET lease_expires_at = 'infinity' WHERE id::text = %s", endless)
    async with session(shop.url) as somebody, tables(shop.url, "jobs") as opened:
        await somebody.execute("SELECT 1 FROM jobs WHERE id::text = %s FOR UPDATE", (locked,))
        reaper = Reaper(opened)
        assert (await reaper.recover(), reaper.troubles) == ([], ())

    assert reaper._next_end is None


async def test_rows_that_a_trigger_protects_do_not_keep_a_reaper_busy_for_ever(shop: Product) -> None:
    await shop.say("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    await shop.say(
        "CREATE TRIGGER keep BEFORE UPDATE ON jobs FOR EACH ROW WHEN (OLD.source_key IS NULL) EXECUTE FUNCTION keep()"
    )
    await shop.say(
        "INSERT INTO jobs (status, lease_expires_at, last_heartbeat_at)"
        " SELECT 'processing', now() - interval '1 s', now() - interval '9 s' FROM generate_series(1, 250)"
    )
    await shop.add(status="processing", created_at=-9000, updated_at=-9000)
    free = await shop.stuck(source_key="free", lease_expires_at=-0.5)

    async with tables(shop.url, "jobs") as opened:
        reaper = Reaper(opened)
        [outcome] = await asyncio.wait_for(reaper.recover(), 10)
    assert outcome.lease.id == free
    [trouble] = reaper.troubles
    assert re.fullmatch(r"table jobs: row \S+ and 249 others: it cannot be changed", trouble)
    assert types(await shop.events(free)) == ["reaper:requeued"]
    assert await shop.say("SELECT count(*) FROM job_events") == [(1,)]


@pytest.mark.accepts("REAP-060")
async def test_more_rows_than_a_batch_are_recovered_in_one_go_and_each_has_its_event(shop: Product) -> None:
    await shop.say(
        "INSERT INTO jobs (status, attempt_count, lease_expires_at, last_heartbeat_at) SELECT 'processing',"
        " CASE WHEN n % 3 = 0 THEN 3 ELSE 1 END, now() - interval '1 s', now() - interval '9 s'"
        " FROM generate_series(1, 450) AS n"
    )

    assert len(await reap(shop)) == 450
    told = await shop.say(
        "SELECT status::text, type, count(*), count(DISTINCT job_id) FROM jobs JOIN job_events ON job_id = jobs.id"
        " WHERE type <> 'alert' GROUP BY 1, 2 ORDER BY 1"
    )
    assert told == [("failed", "reaper:failed(timeout)", 150, 150), ("queued", "reaper:requeued", 300, 300)]


async def test_events_of_a_second_table_are_written_although_a_foreign_key_keeps_them_out(
    shop: Product,
) -> None:
    await shop.say(FOREIGN_KEY)
    await shop.say("ALTER TABLE job_events ALTER job_id DROP NOT NULL")
    clip, asr = await shop.stuck(), await shop.stuck("asr_jobs")

    await reap(shop)

    found = await shop.say(
        "SELECT job_id::text, data #>> '{details,job_id}', data ->> 'table' FROM job_events"
    )
    assert set(found) == {(clip, clip, "jobs"), (None, asr, "asr_jobs")}


@on_one_server
async def test_one_row_that_the_table_refuses_does_not_keep_the_others_stuck(shop: Product) -> None:
    await shop.say("ALTER TABLE asr_jobs ADD CHECK (status <> 'failed')")
    spent = await shop.stuck("asr_jobs", attempt_count=3)
    others = [await shop.stuck("asr_jobs") for _ in range(3)]

    done, [told] = await recovery(shop, "asr_jobs")

    assert done == ["reaper:requeued"] * 3
    assert told.startswith(f"table asr_jobs: row {spent}: new row for relation")
    assert [await shop.status(id_, "asr_jobs") for id_ in [spent, *others]] == ["processing"] + ["queued"] * 3


@on_one_server
async def test_a_beat_in_the_far_future_does_not_keep_a_row_for_ever(shop: Product) -> None:
    await shop.stuck(last_heartbeat_at=9e9)

    assert (await recovery(shop))[0] == ["reaper:requeued"]


@on_one_server
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


@on_one_server
async def test_a_row_whose_worker_was_lost_runs_alone_the_next_time(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        id_ = await shop.stuck()
        await recovery(shop)
        await shop.say("UPDATE jobs SET next_earliest_run_at = now()")
        [job] = await taken(store)
    assert (job.id, job.attempts, job.crashes) == (id_, 2, 1)


@on_one_server
async def test_a_server_that_is_away_is_not_a_trouble_of_its_tables(postgres_server: Postgres) -> None:
    async with product(postgres_server, stays=True) as shop:
        url = shop.url
    async with tables(url) as opened:
        await Reaper(opened).recover()
        await asyncio.to_thread(postgres_server.stop)
        with pytest.raises(StoreUnavailable):
            await opened.reap(lambda job: completed(job.lease), Recovery("reaper", 60.0, 10))
