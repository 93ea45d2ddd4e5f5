"""The command on tables that a product made for itself: reap, init and doctor."""

import asyncio
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.command import COMMAND, on_a_terminal, said, unstuck
from support.postgres import Postgres
from support.processes import Child
from support.product import Product, product
from support.servers import free_port
from support.sessions import session
from support.waiting import until_async

from unstuck.stores import open_tables
from unstuck.stores.postgres.foreign import prepare
from unstuck.stores.postgres.foreign.table import probe

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("postgres_server", ["18"], indirect=True)]
BARE = "CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'queued', url text)"
LIMITED = """
CREATE ROLE {role} LOGIN PASSWORD 'limited';
GRANT SELECT, UPDATE ON jobs, asr_jobs TO {role};
GRANT SELECT, INSERT ON job_events TO {role};
"""
READER = "CREATE ROLE {role} LOGIN PASSWORD 'limited'; GRANT SELECT ON jobs, asr_jobs, job_events TO {role};"


async def as_role(shop: Product, rights: str) -> str:
    """The URL for a user who has these rights and no others."""
    role = f"role_{shop.url.rpartition('_')[2]}"
    await shop.say(rights.replace("{role}", role))
    return re.sub(r"//.*@", f"//{role}:limited@", shop.url)


async def everything(shop: Product) -> list[tuple[Any, ...]]:
    return [
        row
        for table in ("jobs", "asr_jobs", "job_events")
        for row in await shop.say(f"SELECT t::text FROM {table} t ORDER BY 1")
    ]


async def test_reap_once_needs_no_right_but_to_read_update_and_notify(shop: Product, tmp_path: Path) -> None:
    ids = [
        await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5, attempt_count=tries) for tries in (1, 3)
    ]
    asr = await shop.stuck("asr_jobs", lease_expires_at=-1, last_heartbeat_at=-1.5)
    url = await as_role(shop, LIMITED)

    answer = unstuck(
        tmp_path, "reap", "--store", url, "--table", "jobs", "--table", "asr_jobs", "--once", "--json"
    )

    assert said(answer) == {"recovered": 3, "requeued": 2, "failed": 1, "troubles": [], "expired": 0}
    assert [await shop.status(id_) for id_ in ids] == ["queued", "failed"]
    assert await shop.status(asr, "asr_jobs") == "queued"
    assert await shop.say("SELECT 1 FROM pg_namespace WHERE nspname = 'unstuck'") == []


@pytest.mark.accepts("REAP-014", "REAP-024", "REAP-062")
async def test_the_service_acts_when_a_lease_ends_and_shows_what_it_did(
    shop: Product, tmp_path: Path
) -> None:
    soon = await shop.add(
        status="processing", locked_by="clipper-1", attempt_count=1, lease_expires_at=3, last_heartbeat_at=0
    )
    spent = await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5, attempt_count=3)
    await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5)
    port = free_port()

    def metrics() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
        }

    options = ["--table", "jobs", "--table", "asr_jobs", "--metrics-port", str(port)]
    with Child([COMMAND, "reap", "--store", shop.url, *options], tmp_path / "reaper.log") as child:

        async def acted() -> bool:
            return (await shop.status(soon), await shop.status(spent)) == ("queued", "failed")

        await until_async(acted, 15, "the reaper to act, long before its 60 seconds are over")

        async def shown() -> bool:
            return (await asyncio.to_thread(metrics))['reaper_requeues_total{queue="jobs"}'] == 2

        await until_async(shown, 15, "the metrics to show it")
        found = await asyncio.to_thread(metrics)
        assert found['reaper_failures_total{queue="jobs"}'] == 1
        assert found['reaper_requeues_total{queue="asr_jobs"}'] == 0
        [scan] = [value for name, value in found.items() if name.startswith("reaper_scan_duration_ms{")]
        assert 0 < scan < 5000
        child.terminate()
        assert await asyncio.to_thread(child.wait, 20) == 0


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["reap", "--table", "jobs", "--once"], 2, "no store is named"),
        (
            ["reap", "--store", "sqlite:///jobs.db", "--table", "jobs"],
            2,
            "tables of yours can only be on PostgreSQL",
        ),
        (["reap", "--store", "{url}", "--table", "a b", "--once"], 2, "table 'a b' is not allowed"),
        (
            ["reap", "--store", "{url}", "--table", "no", "--once"],
            1,
            "there is no table 'no' in this database",
        ),
        (
            ["reap", "--store", "{url}", "--table", "job_events", "--once"],
            1,
            "has no column status and no column",
        ),
        (
            ["reap", "--store", "{url}?jobs.tries=x", "--table", "jobs", "--once"],
            2,
            "'tries' is not known: use id,",
        ),
        (["init", "--store", "{url}", "--table", "no"], 1, "there is no table 'no' in this database"),
        (["init", "--store", "{url}", "--dry-run"], 2, "--dry-run is for --table"),
        (["doctor", "{url}", "--table", "no"], 1, "there is no table 'no' in this database"),
    ],
)
async def test_what_is_impossible_is_reported_in_one_line(
    shop: Product, tmp_path: Path, args: list[str], code: int, told: str
) -> None:
    answer = unstuck(tmp_path, *(word.replace("{url}", shop.url) for word in args), store=None)

    assert answer.returncode == code
    lines = [line for line in (answer.stdout + answer.stderr).splitlines() if told in line]
    assert lines, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


async def test_a_table_that_cannot_be_reaped_does_not_keep_the_others_from_it(
    shop: Product, tmp_path: Path
) -> None:
    id_ = await shop.stuck("asr_jobs", lease_expires_at=-1, last_heartbeat_at=-1.5)
    await shop.say("ALTER TABLE jobs DROP COLUMN lease_expires_at")

    answer = unstuck(
        tmp_path, "reap", "--store", shop.url, "--table", "jobs", "--table", "asr_jobs", "--once"
    )

    assert answer.returncode == 1
    assert "recovered 1 jobs: 1 requeued, 0 failed" in answer.stdout
    assert "has no column lease_expires_at: run unstuck init --table jobs" in answer.stderr
    assert await shop.status(id_, "asr_jobs") == "queued"


async def test_on_a_terminal_what_was_recovered_and_what_was_not_is_printed_once(
    shop: Product, tmp_path: Path
) -> None:
    await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5)
    await shop.say("ALTER TABLE asr_jobs DROP COLUMN lease_expires_at")
    reap = ["reap", "--store", shop.url, "--table", "jobs", "--table", "asr_jobs", "--once"]

    code, shown = on_a_terminal(tmp_path, *reap)

    assert code == 1
    assert shown.count("recovered 1 jobs") == 1, shown
    assert shown.count("has no column lease_expires_at") == 1, shown
    assert "{" not in shown


@pytest.mark.accepts("REAP-080")
async def test_init_adds_only_what_nobody_notices_and_shows_it_before(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    async with product(postgres_server, BARE) as shop:
        old = "INSERT INTO jobs (url) VALUES ('before') RETURNING id"
        await shop.say(old)
        dry = unstuck(tmp_path, "init", "--store", shop.url, "--table", "jobs", "--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert await shop.say("SELECT 1 FROM pg_attribute WHERE attname = 'lease_expires_at'") == []
        added = re.findall(r'ADD COLUMN IF NOT EXISTS "(\w+)" (.*?),?$', dry.stdout, re.MULTILINE)
        assert {name for name, _ in added} >= {"locked_by", "lease_expires_at", "attempt_count", "stage"}
        assert all("NOT NULL" not in type_ or "DEFAULT" in type_ for _, type_ in added)
        assert all("CONCURRENTLY" in line for line in dry.stdout.splitlines() if "CREATE INDEX" in line)

        done = said(unstuck(tmp_path, "init", "--store", shop.url, "--table", "jobs", "--json"))
        assert (len(done["sql"]), done["applied"]) == (5, True)
        await shop.say(old)
        indexes = await shop.say("SELECT count(*) FROM pg_index WHERE NOT indisvalid")
        assert indexes == [(0,)]
        again = unstuck(tmp_path, "init", "--store", shop.url, "--table", "jobs", "--dry-run")
        assert again.stdout == "-- nothing is missing\n"

        await shop.say(
            "UPDATE jobs SET status = 'processing', lease_expires_at = now() - interval '1 s',"
            " last_heartbeat_at = now() - interval '1.5 s'"
        )
        told = said(unstuck(tmp_path, "reap", "--store", shop.url, "--table", "jobs", "--once", "--json"))
        assert (told["recovered"], told["requeued"]) == (2, 2)
        assert await shop.say("SELECT type, count(*) FROM job_events GROUP BY 1") == [("reaper:requeued", 2)]


async def test_what_the_product_has_is_not_added_again(shop: Product) -> None:
    async with open_tables(f"{shop.url}?table=jobs&table=asr_jobs") as tables:
        sql = await tables.preparation()

    assert re.findall(r'"unstuck_\w+"', "\n".join(sql)) == ['"unstuck_jobs_due"', '"unstuck_asr_jobs_due"']


async def test_an_index_serves_by_what_it_begins_with(shop: Product) -> None:
    await shop.say("DROP INDEX idx_jobs_status_lease")
    await shop.say("CREATE INDEX ON jobs (stage, lease_expires_at)")
    async with open_tables(f"{shop.url}?table=jobs") as tables:
        sql = await tables.preparation()

    assert re.findall(r'"unstuck_\w+"', "\n".join(sql)) == ['"unstuck_jobs_lease"', '"unstuck_jobs_due"']


@pytest.mark.parametrize("name", ["lapsed", "lease", "next_end", "work"])
async def test_what_was_prepared_is_used(postgres_server: Postgres, name: str) -> None:
    async with product(postgres_server, BARE) as shop, open_tables(f"{shop.url}?table=jobs") as tables:
        await shop.say("ALTER TABLE jobs ADD created_at timestamptz DEFAULT now()")
        await tables.prepare()
        [layout] = tables._address.layouts
        table = await tables._trips.apart(probe(layout, "pg_temp", set()))
        await shop.say("CREATE TEMP TABLE queues (name text, paused_at timestamptz)")
        await shop.say("SET enable_seqscan = off; SET enable_bitmapscan = off")
        values = {
            "as_of": "now()",
            "blind": "'[]'",
            "without": "'{}'",
            "limit": "10",
            "owner": "'w'",
            "queue": "'jobs'",
            "seconds": "20.0",
            "most": "5",
            "only_new": "false",
        }
        text = re.sub(r"%\((\w+)\)s", lambda found: values.get(found[1], "2000000"), table.text(name))
        plan = "\n".join(line for (line,) in await shop.say(f"EXPLAIN {text}"))

    index = "unstuck_jobs_lease" if name in ("lapsed", "next_end") else "unstuck_jobs_due"
    assert f"Index Scan using {index}" in plan or f"Index Only Scan using {index}" in plan


async def test_an_index_that_was_not_finished_is_made_again(shop: Product) -> None:
    async with open_tables(f"{shop.url}?table=jobs") as tables:
        await tables.prepare()
        await shop.say(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'unstuck_jobs_due'::regclass"
        )
        drop, create = await tables.prepare()

    assert drop.startswith("DROP INDEX CONCURRENTLY")
    assert create.startswith("CREATE INDEX CONCURRENTLY")
    assert await shop.say(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'unstuck_jobs_due'::regclass"
    ) == [(True,)]


async def test_init_does_not_hold_anybody_up_while_it_waits_for_a_lock(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(prepare, "AGAIN", 0.05)
    monkeypatch.setattr(prepare, "TRIES", 200)
    async with product(postgres_server, BARE) as shop, open_tables(f"{shop.url}?table=jobs") as tables:
        async with session(shop.url) as long:
            await long.execute("INSERT INTO jobs (url) VALUES ('in a long transaction')")
            preparing = asyncio.create_task(tables.prepare())

            async def tried() -> bool:
                return bool(
                    await shop.say(
                        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'ALTER%%'",
                    )
                )

            await until_async(tried, 10, "it to wait for the table")
            await asyncio.wait_for(shop.add(), 20)
            await long.commit()
        assert len(await asyncio.wait_for(preparing, 20)) == 5


async def test_doctor_names_what_is_stuck_and_what_a_reaper_would_do_and_changes_nothing(
    shop: Product, tmp_path: Path
) -> None:
    await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5, stage="burnin")
    await shop.stuck("asr_jobs", lease_expires_at=-1, last_heartbeat_at=-1.5, attempt_count=3)
    await shop.stuck(lease_expires_at=-60, last_heartbeat_at=-90_000)
    await shop.add(status="processing", created_at=-90_000, updated_at=-90_000)
    await shop.add(locked_by="somebody")
    for word in ("archived", "pending", "pending"):
        await shop.add("asr_jobs", status=word)
    url, before = await as_role(shop, READER), await everything(shop)

    answer = unstuck(tmp_path, "doctor", url, "--table", "jobs", "--table", "asr_jobs", "--json")

    assert answer.returncode == 1
    found = json.loads(answer.stdout)
    by = {re.sub(r"(?<=wait until ).+", "…", row["would"]): row for row in found["stuck"]}
    assert set(by) == {
        "requeue it, due in 30 s",
        "fail it: timeout",
        "wait until …",
        "give it a lease of 3600 s",
    }
    requeue, fail = by["requeue it, due in 30 s"], by["fail it: timeout"]
    assert (requeue["stage"], requeue["held_by"], requeue["attempts"]) == ("burnin", "clipper-1", 1)
    assert 1 <= requeue["ended"] < 30
    assert 1.5 <= requeue["last_sign"] < 30
    assert (fail["table"], fail["why"]) == ("asr_jobs", "its lease ran out in attempt 3 of 3")
    assert "the server was down" in by["wait until …"]["why"]
    told = [finding["what"] for finding in found["findings"]]
    assert any("3 rows of table jobs are stuck" in what for what in told)
    assert any("1 rows of table jobs wait, but have a lock" in what for what in told)
    [strange] = [finding for finding in found["findings"] if "that is none of" in finding["what"]]
    assert strange["what"] == (
        "3 rows of table asr_jobs have a status that is none of queued, processing, done, failed, so that nobody takes them: "
        "'pending' (2), 'archived' (1)"
    )
    assert "asr_jobs.queued=pending (docs/tables.md)" in strange["fix"]
    assert await everything(shop) == before

    shown = unstuck(tmp_path, "doctor", url, "--table", "jobs")
    assert "requeue it, due in 30 s" in shown.stdout
    assert "clipper-1" in shown.stdout
    assert "unstuck reap --store … --table jobs --once" in shown.stdout


async def test_doctor_gives_one_piece_of_advice_about_a_table_that_cannot_be_used(
    shop: Product, tmp_path: Path
) -> None:
    await shop.say("ALTER TABLE jobs DROP COLUMN lease_expires_at")

    lacking = unstuck(tmp_path, "doctor", shop.url, "--table", "jobs").stdout
    missing = unstuck(tmp_path, "doctor", shop.url, "--table", "clips").stdout

    assert "run unstuck init --table jobs" in lacking
    assert "name one that is there" not in lacking
    assert "there is no table 'clips'" in missing
    assert "name one that is there" in missing


async def test_a_user_who_may_only_read_sees_the_table_and_no_schema_of_ours(
    shop: Product, tmp_path: Path
) -> None:
    await shop.stuck()
    url = await as_role(shop, READER)

    answer = unstuck(tmp_path, "reap", "--store", url, "--table", "jobs", "--once")

    assert answer.returncode == 1
    assert "permission denied for table jobs" in answer.stdout + answer.stderr
    assert "schema 'unstuck'" not in answer.stdout + answer.stderr


async def test_doctor_names_what_a_table_lacks(shop: Product, tmp_path: Path) -> None:
    await shop.say("ALTER TABLE jobs DROP COLUMN stage, DROP COLUMN next_earliest_run_at")
    await shop.say("ALTER TABLE jobs ALTER last_heartbeat_at TYPE timestamp")
    await shop.say("DROP TABLE job_events")

    answer = unstuck(tmp_path, "doctor", shop.url, "--table", "jobs")

    assert answer.returncode == 0, answer.stdout
    for told in (
        "table jobs has no next_earliest_run_at: a row that is put back runs again at once",
        "table jobs has no stage: all rows of the table have the same stage",
        "events of table jobs cannot be written, only logged: there is no table job_events",
        "last_heartbeat_at do not say their time zone",
        "unstuck init --store … --table jobs",
    ):
        assert told in answer.stdout
