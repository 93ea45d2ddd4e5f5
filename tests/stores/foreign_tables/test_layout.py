"""Tables with other names, words, types and fewer columns than most; and layouts that cannot be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.postgres import Postgres
from support.product import Product, product, recovery, tables, types
from support.waiting import until_async
from support.work import burst

from unstuck import ConfigError, Layout, Reaper, SchemaError, Terms, Unstuck, open_store
from unstuck.protocol.availability import Availability
from unstuck.protocol.leases import Share
from unstuck.protocol.retry import judge
from unstuck.stores import open_tables

pytestmark = pytest.mark.anyio
OTHER = """
CREATE SCHEMA "Media";
CREATE TABLE "Media"."Clips" (
    "clipId" bigserial PRIMARY KEY, state varchar(12) NOT NULL DEFAULT '0% done', tries smallint, "lockedBy" varchar(200),
    "leaseUntil" timestamptz, "errorMessage" varchar(20), url text
);
CREATE TABLE "Media"."History" (
    "historyId" uuid NOT NULL, clip text NOT NULL, kind text NOT NULL, body json NOT NULL, happened timestamptz NOT NULL
);
"""
CLIPS = Layout(
    "Media.Clips", id="clipId", status="state", attempts="tries", owner="lockedBy", lease="leaseUntil",
    error_message="errorMessage", queued="0% done", processing="50% done", done="100% done", failed="it's off",
    events="Media.History", event_job="clip", event_type="kind", event_data="body", event_at="happened",
    terms=Terms(max_attempts=2, lease=60.0, backoff=(5.0,)),
)  # fmt: skip
LEAST = (
    "CREATE TABLE jobs (id text PRIMARY KEY, status text, attempt_count bigint, lease_expires_at timestamptz)"
)
NAIVE = """
ALTER DATABASE {database} SET TimeZone = 'Asia/Kolkata';
CREATE TABLE jobs (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, status text NOT NULL DEFAULT 'queued', attempt_count integer,
    locked_by text, lease_expires_at timestamp, last_heartbeat_at timestamp, next_earliest_run_at timestamp,
    created_at timestamp DEFAULT now()
)
"""


@pytest.fixture
async def clips(postgres_server: Postgres) -> AsyncIterator[Product]:
    async with product(postgres_server, OTHER) as made:
        yield made


@pytest.mark.accepts("REAP-004")
def test_the_usual_names_are_those_that_such_tables_have() -> None:
    jobs, asr = Layout("jobs"), Layout("asr_jobs")

    assert (jobs.status, jobs.beat, jobs.attempts) == ("status", "last_heartbeat_at", "attempt_count")
    assert (jobs.lease, jobs.owner, jobs.run_at) == ("lease_expires_at", "locked_by", "next_earliest_run_at")
    assert (jobs.queued, jobs.processing, jobs.done, jobs.failed) == (
        "queued",
        "processing",
        "done",
        "failed",
    )
    assert (jobs.events, jobs.event_data, jobs.usual_stage, asr.usual_stage) == (
        "job_events",
        "data",
        "clip",
        "asr",
    )


async def test_a_table_may_call_everything_otherwise(clips: Product) -> None:
    stuck = 'INSERT INTO "Media"."Clips" (state, tries, "lockedBy", "leaseUntil") VALUES (%s, %s, %s, now() - %s::interval)'
    for tries in (1, 2):
        await clips.say(stuck, "50% done", tries, "old one", "1 min")
    await clips.say(stuck, "100% done", 1, None, "1 min")

    async with tables(clips.url, CLIPS) as opened:
        done = await Reaper(opened).recover()

    assert [outcome.ending for outcome in done] == ["retried", "failed"]
    rows = await clips.say(
        'SELECT state, tries, "lockedBy", "leaseUntil", "errorMessage" FROM "Media"."Clips" ORDER BY 1'
    )
    assert rows == [
        ("0% done", 1, None, None, None),
        ("100% done", 1, None, rows[1][3], None),
        ("it's off", 2, None, None, "worker old one never"),  # as much as there is room for
    ]
    told = await clips.say('SELECT clip, kind, body ->> \'table\' FROM "Media"."History" ORDER BY kind')
    assert told == [
        ("2", "alert", "Media.Clips"),
        ("2", "reaper:failed(timeout)", "Media.Clips"),
        ("1", "reaper:requeued", "Media.Clips"),
    ]


async def test_a_url_can_give_the_names_and_a_worker_uses_them(clips: Product) -> None:
    names = {
        "id": "clipId", "status": "state", "attempts": "tries", "owner": "lockedBy", "lease": "leaseUntil",
        "queued": "0%25 done", "processing": "50%25 done", "done": "100%25 done", "failed": "off",
        "events": "Media.History", "event_job": "clip", "event_type": "kind", "event_data": "body", "task": "clip",
    }  # fmt: skip
    options = "&".join(f"Media.Clips.{name}={value}" for name, value in names.items())
    app, seen = Unstuck(f"{clips.url}?{options}"), []

    @app.task(queue="Media.Clips", lease=30.0)
    async def clip(row: dict[str, Any]) -> None:
        seen.append((row["clipId"], row["url"]))

    await clips.say("INSERT INTO \"Media\".\"Clips\" (url) VALUES ('a.mp4'), ('b.mp4')")
    async with app:
        await burst(app)

    assert sorted(seen) == [(1, "a.mp4"), (2, "b.mp4")]
    assert await clips.say('SELECT DISTINCT state, tries FROM "Media"."Clips"') == [("100% done", 1)]


async def test_a_table_with_nothing_but_the_least_is_reaped(
    postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    async with product(postgres_server, LEAST) as shop:
        for number, attempts in enumerate((None, 1, 3)):
            await shop.add(id=f"j{number}", status="processing", attempt_count=attempts, lease_expires_at=-60)
        await shop.add(id="new", status="processing")

        async with tables(shop.url, "jobs") as opened:
            assert len(await Reaper(opened).recover()) == 3
            assert len(await Reaper(opened).recover()) == 0

        found = await shop.say(
            "SELECT id, status, attempt_count, lease_expires_at IS NULL FROM jobs ORDER BY id"
        )
        assert found == [
            ("j0", "queued", 1, True), ("j1", "queued", 1, True), ("j2", "failed", 3, True),
            ("new", "processing", None, False),
        ]  # fmt: skip
        assert (
            "events of table jobs cannot be written to job_events: there is no table job_events"
            in caplog.text
        )
        async with open_store(f"{shop.url}?table=jobs") as store:
            await store.migrate()
            with pytest.raises(
                SchemaError, match="no column locked_by, which a worker needs: run unstuck init"
            ):
                await store.lease({"jobs": Share(20.0, 1)}, 1, "w")


async def test_times_without_a_zone_are_read_as_the_server_wrote_them(
    postgres_server: Postgres,
) -> None:
    url = postgres_server.create_database()
    postgres_server.execute(NAIVE.format(database=url.rpartition("/")[2]), url.rpartition("/")[2])
    stuck = (
        "INSERT INTO jobs (status, locked_by, attempt_count, lease_expires_at, last_heartbeat_at)"
        " VALUES ('processing', 'w', 1, now() + interval '{}', now() - interval '300 s')"
    )
    name = url.rpartition("/")[2]
    for end in ("-10 s", "10 s"):
        postgres_server.execute(stuck.format(end), name)

    async with tables(url, "jobs") as opened:
        assert [outcome.lease.id for outcome in await Reaper(opened).recover()] == ["1"]
    [(wait,)] = postgres_server.execute(
        "SELECT extract(epoch FROM next_earliest_run_at - now()::timestamp)::float FROM jobs WHERE id = 1",
        name,
    )
    assert 20 < wait <= 36
    async with open_store(f"{url}?table=jobs") as store:
        await store.migrate()
        assert await store.lease({"jobs": Share(20.0, 1)}, 1, "w") == []  # it waits
        postgres_server.execute("INSERT INTO jobs DEFAULT VALUES", name)
        [job] = await store.lease({"jobs": Share(20.0, 1)}, 1, "w")
    [(left,)] = postgres_server.execute(
        f"SELECT extract(epoch FROM lease_expires_at - now()::timestamp)::float FROM jobs WHERE id = {job.id}",
        name,
    )
    assert 280 < left <= 300
    postgres_server.drop_database(url)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"table": 'jobs"; DROP TABLE jobs; --'}, "table 'jobs\"; DROP TABLE jobs; --' is not allowed"),
        ({"table": ""}, "table '' is not allowed"),
        ({"table": "a.b.c"}, "table 'b.c' is not allowed"),
        ({"table": "jobs", "lease": "now()"}, "column lease 'now()' is not allowed"),
        ({"table": "jobs", "events": "a b"}, "events 'a b' is not allowed"),
        ({"table": "jobs", "queued": ""}, "queued='' is not a valid status"),
        ({"table": "jobs", "queued": "a\nb"}, "is not a valid status"),
        (
            {"table": "jobs", "queued": "done"},
            "queued, processing, done, failed must be four different words",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Layout(**how)
    assert told in str(caught.value)


@pytest.mark.accepts("REAP-072")
async def test_a_reaper_inside_an_application_looks_after_tables(postgres_server: Postgres) -> None:
    with pytest.raises(ConfigError, match="tables of yours can only be on PostgreSQL"):
        open_tables("sqlite:///jobs.db", [Layout("jobs")])
    async with product(postgres_server) as shop:
        id_ = await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5)
        before = asyncio.all_tasks()
        async with Reaper(shop.url, tables=["jobs", Layout("asr_jobs")], interval=0.3) as reaper:
            assert await shop.status(id_) == "queued"
            assert reaper.scan_ms is not None
            later = await shop.stuck("asr_jobs", lease_expires_at=-1, last_heartbeat_at=-1.5)

            async def put_back() -> bool:
                return await shop.status(later, "asr_jobs") == "queued"

            await until_async(put_back, 10, "the next round")
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "shape",
    [
        "ALTER TABLE jobs ALTER locked_by TYPE uuid USING NULL",
        "ALTER TABLE jobs ALTER locked_by TYPE integer USING NULL",
        "UPDATE jobs SET locked_by = ''; ALTER TABLE jobs ALTER locked_by SET DEFAULT '', ALTER locked_by SET NOT NULL",
        "ALTER TABLE jobs ALTER last_heartbeat_at SET NOT NULL",
        "ALTER TABLE jobs ALTER lease_expires_at SET NOT NULL",
        "ALTER TABLE jobs ALTER error_code TYPE integer USING NULL",
        "ALTER TABLE jobs DROP updated_at, ADD updated_at timestamptz GENERATED ALWAYS AS (lease_expires_at) STORED",
        "ALTER TABLE jobs ALTER created_at DROP DEFAULT, ALTER created_at TYPE bigint USING 1",
        "ALTER TABLE jobs ALTER fail_reason TYPE varchar(5), ALTER error_message TYPE varchar(5)",
        "ALTER TABLE jobs ALTER attempt_count TYPE numeric",
        "ALTER TABLE jobs ALTER max_attempts TYPE text",
        "CREATE DOMAIN moment AS timestamptz; ALTER TABLE jobs ALTER last_heartbeat_at TYPE moment",
        "ALTER TABLE job_events ALTER data TYPE text",
        "ALTER TABLE job_events ALTER data TYPE text; INSERT INTO job_events (job_id, type, data) SELECT id, 'x', 'hello' FROM jobs",
        "ALTER TABLE job_events DROP type",
        "CREATE VIEW work AS SELECT * FROM jobs; ALTER TABLE jobs RENAME TO hidden; ALTER VIEW work RENAME TO jobs",
    ],
)
async def test_a_table_of_any_reasonable_shape_is_recovered(shop: Product, shape: str) -> None:
    ids = [await shop.stuck(attempt_count=tries) for tries in (1, 3)]
    await shop.say(shape)

    done, troubles = await recovery(shop, "jobs")

    assert (done, troubles) == (["reaper:requeued", "reaper:failed(timeout)"], ())
    assert [await shop.status(id_) for id_ in ids] == ["queued", "failed"]
    async with tables(shop.url, "jobs") as opened:
        await opened.checkup()
        [counts] = await opened.count()
    assert (counts.pending, counts.failed) == (1, 1)


def test_a_column_has_one_meaning() -> None:
    assert Layout("jobs", beat="updated_at").updated == ""
    coded = Layout("jobs", fail_code="error_code", fail_reason="error_message")
    assert (coded.error_code, coded.error_message) == ("", "")
    with pytest.raises(ConfigError, match="column at cannot be both beat and started"):
        Layout("jobs", beat="at", started="at")


async def test_layouts_that_share_columns_are_recovered(shop: Product) -> None:
    id_ = await shop.stuck(attempt_count=3, updated_at=-360)
    layout = Layout("jobs", beat="updated_at", fail_code="error_code", fail_reason="error_message")

    assert (await recovery(shop, layout))[0] == ["reaper:failed(timeout)"]
    row = await shop.row(id_)
    assert (row["error_code"], row["error_message"], row["fail_code"]) == ("timeout", "lease_expired", None)


async def test_numbers_and_times_that_are_none_are_survived(shop: Product) -> None:
    await shop.say(
        "ALTER TABLE jobs ALTER attempt_count TYPE numeric, ALTER max_attempts TYPE double precision"
    )
    ids = [await shop.stuck() for _ in range(4)]
    for id_, change in zip(
        ids,
        [
            "attempt_count = 'NaN'",
            "max_attempts = 'Infinity'",
            "last_heartbeat_at = 'infinity'",
            "lease_expires_at = '-infinity'",
        ],
        strict=True,
    ):
        await shop.say(f"UPDATE jobs SET {change} WHERE id::text = %s", id_)

    done, troubles = await recovery(shop, "jobs")
    assert (len(done), troubles) == (4, ())


async def test_the_least_table_can_be_counted_and_examined(postgres_server: Postgres) -> None:
    least = "CREATE TABLE jobs (id text PRIMARY KEY, status text, attempt_count bigint, lease_expires_at timestamptz)"
    async with product(postgres_server, least) as shop, tables(shop.url, "jobs") as opened:
        await shop.add(id="a")
        [counts] = await opened.count()
        assert (counts.pending, counts.waited) == (1, None)
        assert any("no locked_by" in finding.what for finding in await opened.checkup())
        await shop.add(id="b", status="processing", attempt_count=1, lease_expires_at=-60)
        [row] = await opened.stuck(judge, Availability().look(await opened.clock()), 3600.0, 10)
        assert row.would == "requeue it, due at once"


async def test_a_partitioned_table_is_prepared_as_far_as_can_be(postgres_server: Postgres) -> None:
    made = (
        "CREATE TABLE jobs (id bigint NOT NULL, day date NOT NULL DEFAULT now(), status text, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day); CREATE TABLE jobs_all PARTITION OF jobs DEFAULT;"
        "CREATE TABLE job_events (id bigserial, job_id bigint NOT NULL, day date DEFAULT now(), type text, data jsonb,"
        " FOREIGN KEY (job_id, day) REFERENCES jobs (id, day))"
    )
    async with product(postgres_server, made) as shop, open_tables(f"{shop.url}?table=jobs") as opened:
        assert not any("jobs_lease" in sql for sql in await opened.prepare())
        await shop.add(id=1, status="processing", lease_expires_at=-1, last_heartbeat_at=-9)
        assert (await recovery(shop, "jobs"))[0] == ["reaper:requeued"]
        assert types(await shop.events("1")) == ["reaper:requeued"]
