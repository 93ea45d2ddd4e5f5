"""A worker on tables that a product made for itself: it claims, beats for and settles rows."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.product import TABLES, Product, tables, taken, types
from support.sessions import session
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Permanent, Reaper, Snooze, Unstuck, current_job, open_store
from unstuck.contrib.pipeline import pipeline
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import ANSWER, Beat, Share, Verdict
from unstuck.protocol.outcome import Settled, completed, released, retried
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import counts, trouble
from unstuck.text.durations import in_seconds

pytestmark = pytest.mark.anyio
on_one_server = pytest.mark.parametrize("postgres_server", ["15"], indirect=True)


@pytest.fixture
async def app(shop: Product) -> AsyncIterator[Unstuck]:
    app = Unstuck(shop.url + TABLES)
    app.queue("jobs", **pipeline())
    app.queue("asr_jobs", **pipeline())
    async with app:
        yield app


@pytest.mark.accepts("REAP-004", "REAP-030", "REAP-031")
@pytest.mark.parametrize(
    ("table", "facts", "seconds"),
    [
        ("jobs", {}, 300),
        ("jobs", {"expected_duration_ms": 100_000}, 600),  # a clip
        ("asr_jobs", {"expected_duration_ms": 100_000}, 1200),
        ("jobs", {"stage": "burnin", "expected_duration_ms": 100_000}, 800),
        ("jobs", {"stage": "burnin", "expected_duration_ms": 1000}, 300),
        ("jobs", {"stage": "mux", "expected_duration_ms": 400_000}, 400),
        ("jobs", {"expected_duration_ms": 2_000_000_000}, 604_800),
        ("jobs", {"expected_duration_ms": -5}, 300),
    ],
)
async def test_a_claim_is_leased_for_what_its_stage_needs(
    shop: Product, store: Store, table: str, facts: dict[str, Any], seconds: float
) -> None:
    id_ = await shop.add(table, **facts)

    [job] = await taken(store, table=table)

    row = await shop.row(id_, table)
    assert await shop.span(id_, "lease_expires_at", "last_heartbeat_at", table) == seconds
    assert (row["status"], row["attempt_count"], row["locked_by"]) == ("processing", 1, f"w#{job.fence}")
    heard = await shop.left(id_, "last_heartbeat_at", table)
    assert heard is not None
    assert -60 < heard <= 0


@pytest.mark.accepts("REAP-032", "REAP-033")
@pytest.mark.parametrize(
    ("table", "stage", "variable", "text", "seconds"),
    [
        ("jobs", None, "CLIP_SLA_FACTOR", "50", 500),
        ("asr_jobs", None, "ASR_SLA_FACTOR", "60.5", 605),
        ("jobs", "burnin", "BURNIN_SLA_FACTOR", "70", 700),
        ("jobs", None, "QUEUE_VISIBILITY_SEC", "90", 90),
        ("jobs", None, "JOB_LEASE_SEC", "400", 400),
    ],
)
async def test_factors_and_floor_are_the_environments(
    shop: Product,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    stage: str | None,
    variable: str,
    text: str,
    seconds: int,
) -> None:
    monkeypatch.setenv(variable, text)
    id_ = await shop.add(table, stage=stage, expected_duration_ms=10_000)

    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        assert len(await taken(store, 2, table)) == 1
    assert await shop.span(id_, "lease_expires_at", "last_heartbeat_at", table) == seconds


async def test_only_rows_that_are_due_are_claimed_and_each_only_once(shop: Product, store: Store) -> None:
    due = [await shop.add(), await shop.add(next_earliest_run_at=-5)]
    others = [
        await shop.add(next_earliest_run_at=60),
        await shop.add(status="processing", next_earliest_run_at=-5),
        await shop.add(status="done", next_earliest_run_at=-5),
        await shop.add(status="failed", next_earliest_run_at=-5),
    ]
    before = [await shop.row(id_) for id_ in others]

    claimed = await asyncio.gather(*(taken(store, 10, owner=f"w{number}") for number in range(8)))

    assert sorted(job.id for jobs in claimed for job in jobs) == sorted(due)
    assert [await shop.row(id_) for id_ in others] == before
    assert await taken(store, 10) == []


async def test_a_claim_takes_no_more_rows_than_one_answer_can_carry(shop: Product, store: Store) -> None:
    each = 4_000_000
    ids = [await shop.add(source_key="x" * each, created_at=number - 100) for number in range(6)]

    first = await taken(store, 10)
    assert (len(first) - 1) * each < ANSWER <= len(first) * each
    assert [job.id for job in [*first, *await taken(store, 10)]] == ids


@pytest.mark.accepts("REAP-001", "REAP-014", "REAP-051")
async def test_a_row_that_was_put_back_is_not_taken_before_its_time_and_then_is(
    shop: Product, app: Unstuck
) -> None:
    ran = asyncio.Event()

    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        ran.set()

    id_ = await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-2)
    async with at_work(app):

        async def put_back() -> bool:
            return await shop.status(id_) == "queued"

        await until_async(put_back, 10, "the reaper of the worker")
        totals = (await counts(await app.store(), "jobs")).totals
        assert (totals.get("reaper.requeues"), totals.get("reaper.failures")) == (1, None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ran.wait(), 1.0)
        await shop.say("UPDATE jobs SET next_earliest_run_at = now() - interval '1 s'")
        await asyncio.wait_for(ran.wait(), 10)  # nobody has to publish it anew
    assert types(await shop.events(id_)) == ["reaper:requeued", "leased", "completed"]


@pytest.mark.accepts("REAP-040", "REAP-041")
async def test_a_beat_renews_for_as_long_as_the_stage_needs_that_the_row_is_in_now(
    shop: Product, store: Store
) -> None:
    id_ = await shop.add(expected_duration_ms=100_000)
    [job] = await taken(store)
    assert 10.0 <= in_seconds(pipeline({})["heartbeat"]) <= 15.0
    for stage, seconds in ((None, 600), ("asr", 1200), (None, 1200), ("burnin", 800)):
        await shop.age(100)
        pulse = await store.heartbeat(
            WorkerInfo(id="w", queues=("jobs",)), [Beat(job.lease, 20.0, stage=stage)]
        )

        assert pulse.verdicts == {job.lease: Verdict.HELD}
        assert await shop.span(id_, "lease_expires_at", "last_heartbeat_at") == seconds
        heard = await shop.left(id_, "last_heartbeat_at")
        assert heard is not None
        assert -60 < heard <= 0
    assert (await shop.row(id_))["stage"] == "burnin"


async def test_a_row_that_the_product_has_locked_does_not_hold_up_the_beats_for_others(
    shop: Product, store: Store
) -> None:
    for _ in range(2):
        await shop.add()
    jobs = await taken(store, 2)
    beats = [Beat(job.lease, 300.0) for job in jobs]
    await shop.age(100)
    async with session(shop.url) as other:
        await other.execute("UPDATE jobs SET progress = 50 WHERE id::text = %s", [jobs[0].id])
        pulse = await asyncio.wait_for(store.heartbeat(WorkerInfo(id="w", queues=("jobs",)), beats), 20)
        await other.commit()

    assert pulse.verdicts == {jobs[1].lease: Verdict.HELD}  # of the other nothing is known yet
    left = [await shop.left(job.id, "lease_expires_at") for job in jobs]
    assert [seconds is not None and seconds > 250 for seconds in left] == [False, True]


@pytest.mark.parametrize(
    "change",
    [
        "status = 'queued', locked_by = NULL",
        "status = 'failed'",
        "locked_by = 'somebody else'",
        "locked_by = 'w#1'",
        "locked_by = NULL",
    ],
)
async def test_a_worker_that_lost_a_row_can_neither_renew_nor_end_it(
    shop: Product, store: Store, change: str
) -> None:
    id_ = await shop.add()
    [job] = await taken(store)
    await shop.say(f"UPDATE jobs SET lease_expires_at = NULL, {change}")
    before = await shop.row(id_)

    pulse = await store.heartbeat(WorkerInfo(id="w", queues=("jobs",)), [Beat(job.lease, 300.0)])
    assert pulse.verdicts == {job.lease: Verdict.LOST}
    for outcome in (completed(job.lease), released(job.lease), retried(job.lease, trouble(), 5.0)):
        assert await store.settle([outcome]) == [Settled.LOST]
    assert await shop.row(id_) == before


async def test_a_settle_whose_answer_was_lost_is_repeated(shop: Product, store: Store) -> None:
    await shop.add()
    [job] = await taken(store)

    assert await store.settle([completed(job.lease, {"ok": 1})]) == [Settled.APPLIED]
    assert await store.settle([completed(job.lease, {"ok": 1})]) == [Settled.REPEATED]
    assert await store.settle([retried(job.lease, trouble(), 5.0)]) == [Settled.LOST]


@pytest.mark.parametrize("table", ["jobs", "asr_jobs"])
async def test_a_worker_without_room_leaves_rows_that_were_begun_before_to_others(
    shop: Product, store: Store, table: str
) -> None:
    tried, given_back = [await shop.add(table) for _ in range(2)]
    jobs = {job.id: job for job in await taken(store, 2, table)}
    await store.settle([retried(jobs[tried].lease, trouble(), 0.0), released(jobs[given_back].lease)])
    new = await shop.add(table)
    ahead = Share(20.0, 5, only_new=True)

    assert await store.lease({table: ahead._replace(at_a_time=5)}, 5, "w") == []
    # Only the first has a column for when a row was begun. Without one a release leaves no trace in the row.
    expected = {new} if table == "jobs" else {new, given_back}
    assert {job.id for job in await store.lease({table: ahead}, 5, "w")} == expected
    assert {job.id for job in await taken(store, 5, table)} == {tried, given_back, new} - expected


async def test_rows_that_were_taken_together_are_distinguished_when_a_settle_is_repeated(
    shop: Product, store: Store
) -> None:
    """They have the same fence, time after time."""
    await shop.add()
    await shop.add()
    first = await taken(store, 2)
    await store.settle([released(job.lease) for job in first])
    again = await taken(store, 2)
    await store.settle([completed(job.lease) for job in again])

    [one] = [job for job in again if job.id != first[0].id]
    repeated = [released(first[0].lease), completed(one.lease)]
    assert await store.settle(repeated) == [Settled.REPEATED, Settled.REPEATED]
    assert await store.settle([completed(first[0].lease), released(one.lease)]) == [
        Settled.LOST,
        Settled.LOST,
    ]


async def test_attempts_are_counted_once_and_given_back_by_a_release(shop: Product, store: Store) -> None:
    id_ = await shop.add()
    counts = []
    for outcome in (
        released,
        lambda lease: retried(lease, trouble(), 0.0),
        lambda lease: retried(lease, trouble(), 0.0),
    ):
        [job] = await taken(store)
        counts.append(job.attempts)
        await store.settle([outcome(job.lease)])
    assert (counts, (await shop.row(id_))["attempt_count"]) == ([1, 1, 2], 2)


async def test_a_row_whose_handler_fails_waits_unlocked_and_fails_in_the_end(
    shop: Product, app: Unstuck
) -> None:
    tries = []

    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        tries.append(row["attempt_count"])
        raise ConnectionError("the bucket is away")

    id_ = await shop.add()
    for _ in range(3):
        await burst(app)
        row = await shop.row(id_)
        assert (row["locked_by"], row["lease_expires_at"]) == (None, None)
        await shop.age(1000)

    assert (tries, row["status"], row["fail_code"]) == ([1, 2, 3], "failed", "ConnectionError")
    assert row["fail_reason"] == row["error_message"] == "the bucket is away"
    assert types(await shop.events(id_)) == [
        "leased",
        "retried",
        "leased",
        "retried",
        "leased",
        "failed",
        "alert",
    ]


async def test_a_row_that_waits_for_something_else_holds_no_lease_meanwhile(
    shop: Product, app: Unstuck
) -> None:
    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        raise Snooze(600)  # its subtitles are not there yet

    id_ = await shop.add()
    await burst(app)
    row = await shop.row(id_)
    assert (row["status"], row["attempt_count"], row["lease_expires_at"]) == ("queued", 0, None)
    await shop.age(500)
    assert await Reaper(await app.store()).recover() == []


@pytest.mark.accepts("REAP-002", "REAP-034")
async def test_a_long_row_that_reports_its_stage_is_not_reaped(shop: Product, app: Unstuck) -> None:
    go_on = asyncio.Event()

    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        current_job().stage("burnin", expected=200.0)
        await go_on.wait()

    id_ = await shop.add()
    async with at_work(app):

        async def long() -> bool:
            left = await shop.left(id_, "lease_expires_at")
            return left is not None and left > 1000

        await until_async(long, 10, "the beat that tells of the stage")
        await shop.age(900)
        assert await Reaper(await app.store()).recover() == []
        go_on.set()

        async def done() -> bool:
            return await shop.status(id_) == "done"

        await until_async(done, 10, "its end")


@pytest.mark.accepts("REAP-002", "REAP-042")
async def test_a_row_that_is_worked_on_for_longer_than_its_lease_is_never_reaped(shop: Product) -> None:
    """By a handler that blocks, as one does that waits for ffmpeg; fifteen minutes of it, with a lease of five."""
    go_on = threading.Event()
    app = Unstuck(shop.url + TABLES)
    app.queue("asr_jobs", **pipeline() | {"heartbeat": 0.2})

    @app.task(name="asr_jobs", queue="asr_jobs")
    def listen(row: dict[str, Any]) -> None:
        go_on.wait(60)

    id_ = await shop.add("asr_jobs")

    async def beaten() -> bool:
        left = await shop.left(id_, "lease_expires_at", "asr_jobs")
        return left is not None and left > 290

    async def done() -> bool:
        return await shop.status(id_, "asr_jobs") == "done"

    async with app, at_work(app), tables(shop.url) as opened:
        for _ in range(4):
            await until_async(beaten, 10, "a beat")
            await shop.age(250, "asr_jobs")
            assert await Reaper(opened).recover() == []
        go_on.set()
        await until_async(done, 10, "its end")
    assert (await shop.row(id_, "asr_jobs"))["attempt_count"] == 1
    assert types(await shop.events(id_)) == ["leased", "completed"]


async def test_what_follows_a_row_is_enqueued_with_its_end(shop: Product, app: Unstuck) -> None:
    told = []

    @app.task
    async def publish(id: str) -> None:
        told.append(id)

    @app.task(name="asr_jobs", queue="asr_jobs")
    async def listen(row: dict[str, Any]) -> dict[str, str]:
        current_job().then(publish.call(row["id"]))
        return {"text": "hello"}

    id_ = await shop.add("asr_jobs")
    await burst(app)
    await burst(app)

    assert told == [id_]
    [_, done] = await shop.events(id_)
    assert (done["table"], done["details"]["result"]) == ("asr_jobs", {"text": "hello"})


async def test_a_permanent_error_fails_a_row_at_once(shop: Product, app: Unstuck) -> None:
    @app.task(name="jobs", queue="jobs")
    async def clip(row: dict[str, Any]) -> None:
        raise Permanent("no such video")

    id_ = await shop.add()
    await burst(app)

    row = await shop.row(id_)
    assert (row["status"], row["attempt_count"], row["error_message"]) == ("failed", 1, "no such video")


async def _nothing(row: dict[str, Any]) -> None:
    """A handler that is content."""


@on_one_server
async def test_a_stage_that_is_one_of_a_few_words_does_not_stop_the_beats(shop: Product) -> None:
    await shop.say(
        "CREATE TYPE stages AS ENUM ('clip', 'asr'); ALTER TABLE jobs ALTER stage TYPE stages USING NULL"
    )
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add(expected_duration_ms=100_000)
        [job] = await taken(store)
        pulse = await store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 20.0, stage="burnin")])
    assert pulse.verdicts == {job.lease: Verdict.HELD}
    left = await shop.left(job.id, "lease_expires_at")
    assert left is not None
    assert 790 < left <= 800


@on_one_server
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


@on_one_server
async def test_a_holder_may_have_any_name(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add()
        [job] = await taken(store, owner="a#b#7")
        assert (await store.heartbeat(WorkerInfo(id="a#b#7", queues=("jobs",)), [])).strangers == [job.lease]
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]
