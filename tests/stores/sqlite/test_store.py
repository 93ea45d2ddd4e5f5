"""What is particular to the embedded store: its file, its transactions, its plans."""

import asyncio
import gc
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest
from support.waiting import until

from unstuck import ConfigError, Filter, SchemaError, Status, StoreDamaged, StoreUnavailable, open_store
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.outcome import completed
from unstuck.protocol.store import Store
from unstuck.stores.sqlite import rows, steps
from unstuck.stores.sqlite.filters import matching, order
from unstuck.stores.sqlite.store import SQLiteStore
from unstuck.stores.sqlite.writer import Transaction
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look, new, states

pytestmark = pytest.mark.anyio


def sqlite(store: Store) -> SQLiteStore:
    assert isinstance(store, SQLiteStore)
    return store


def synchronous(store: Store) -> int:
    return int(sqlite(store)._writer.reopening.use(lambda connection: connection.pragma("synchronous")))


async def test_only_the_owner_can_read_the_files(harness: SQLiteHarness, tmp_path: Path) -> None:
    await enqueued(harness.store)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


async def test_what_is_acknowledged_waits_for_the_disk_and_a_lease_does_not(harness: SQLiteHarness) -> None:
    await enqueued(harness.store)
    assert synchronous(harness.store) == 2
    assert harness.rows("PRAGMA journal_mode") == [("wal",)]
    [job] = await leased(harness.store)
    assert synchronous(harness.store) == 1
    await harness.store.settle([completed(job.lease)])
    assert synchronous(harness.store) == 2


async def test_the_library_is_free_of_the_wal_reset_bug() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://x", "mysql"),
        ("sqlite:///", "names no file"),
        ("sqlite://jobs.db", "names no file"),
        ("sqlite:///a.db?event=all", "'event'"),
        ("sqlite:///a.db?events=some", "'some'"),
        ("", "not known"),
        ("sqlite:///jobs#1.db", "'#'"),
    ],
)
async def test_a_wrong_url_is_reported_at_once(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(url)


async def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("mysql://user:hunter2@host/db")
    assert "hunter2" not in str(caught.value)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere' does not exist"):
        await open_store(f"sqlite:///{tmp_path}/nowhere/jobs.db").__aenter__()


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(file))
    theirs.execute("CREATE TABLE job (theirs); INSERT INTO job VALUES (1)")

    with pytest.raises(SchemaError, match="another program"):
        await open_store(f"sqlite:///{file}").__aenter__()
    assert list(theirs.execute("SELECT * FROM job")) == [(1,)]


async def test_a_newer_schema_is_not_written_to(harness: SQLiteHarness) -> None:
    harness.rows("PRAGMA user_version = 99")

    with pytest.raises(SchemaError, match=r"version 99.*upgrade"):
        await harness.store.migrate()
    with pytest.raises(SchemaError, match=r"version 99.*upgrade"):
        await open_store(harness.url).__aenter__()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary " * 100)

    with pytest.raises(StoreDamaged, match=r"notes\.txt.*not a SQLite database"):
        async with open_store(f"sqlite:///{tmp_path}/notes.txt") as store:
            await store.migrate()


async def test_a_store_in_memory_is_gone_when_it_is_closed() -> None:
    async with open_store("sqlite:///:memory:") as store:
        await store.migrate()
        await enqueued(store)
        folder = Path(sqlite(store)._path).parent
        assert await states(store) == {"pending": 1}
    assert not folder.exists()


async def test_a_closed_store_raises_an_error_about_it(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        await store.migrate()

    with pytest.raises(StoreUnavailable, match="not open"):
        await store.count()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.enqueue([new()])


async def test_a_failing_step_does_not_harm_its_neighbours_in_the_transaction(harness: SQLiteHarness) -> None:
    bad = new(priority=99)  # the table's own CHECK refuses it

    answers = await asyncio.gather(
        *(harness.store.enqueue([job]) for job in [new(), bad, new(), new()]), return_exceptions=True
    )

    assert [isinstance(answer, Exception) for answer in answers] == [False, True, False, False]
    assert await states(harness.store) == {"pending": 3}


async def test_a_batch_with_a_bad_job_stores_none_of_it(harness: SQLiteHarness) -> None:
    with pytest.raises(Exception, match="CHECK"):
        await harness.store.enqueue([new(), new(priority=99)])

    assert await states(harness.store) == {}


async def test_a_full_disk_loses_nothing_and_heals_by_itself(harness: SQLiteHarness) -> None:
    connection = sqlite(harness.store)._writer.reopening.connection
    assert connection is not None
    await enqueued(harness.store, 5)
    connection.pragma("max_page_count", connection.pragma("page_count"))
    with pytest.raises(StoreUnavailable, match="full"):
        await enqueued(harness.store, 2000)

    assert await states(harness.store) == {"pending": 5}
    connection.pragma("max_page_count", 1_000_000)
    await enqueued(harness.store, 2000)
    assert await states(harness.store) == {"pending": 2005}


async def test_a_caller_that_gives_up_does_not_disturb_the_others(harness: SQLiteHarness) -> None:
    hasty = asyncio.create_task(harness.store.enqueue([new(id="hasty")]))
    await asyncio.sleep(0)
    hasty.cancel()
    await harness.store.enqueue([new(id="patient")])

    found = {job.id for job in (await harness.store.find(Filter())).jobs}
    assert found == {"hasty", "patient"}  # what was asked for is done, whoever listens


def test_threads_end_with_the_event_loop_that_forgot_to_close(tmp_path: Path) -> None:
    async def forgetful() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/jobs.db").__aenter__()
        await store.migrate()
        await enqueued(store)
        await store.count()

    before = threading.active_count()
    for _ in range(5):
        asyncio.run(forgetful())
        gc.collect()

    until(lambda: threading.active_count() <= before, 10, "the threads of closed loops to end")


def plan(store: Store, sql: str, **params: object) -> str:
    connection = sqlite(store)._reading.connection
    assert connection is not None
    rows_ = connection.execute(f"EXPLAIN QUERY PLAN {sql}", params, can_cache=False)
    return " | ".join(row[3] for row in rows_)


@pytest.mark.accepts("REC-062")
async def test_recovery_looks_only_at_leases_that_ended(harness: SQLiteHarness) -> None:
    sql = sqlite(harness.store)._sql["lapsed"]

    found = plan(harness.store, sql, then=1, queues=None, blind="[]", limit=10)

    assert "SEARCH job USING INDEX job_held (lease_until<?)" in found
    assert "SCAN job" not in found
    assert "TEMP B-TREE" not in found


async def test_the_line_and_the_delayed_are_read_from_their_indexes(harness: SQLiteHarness) -> None:
    sql = sqlite(harness.store)._sql

    line = plan(harness.store, sql["line"], queue="q", now=1, limit=1)
    promote = plan(harness.store, sql["promote"], queue="q", now=1, limit=1)
    work = plan(harness.store, sql["work"], queues="[]", now=1)

    assert "SEARCH job USING INDEX job_ready (queue=? AND rank>?)" in line
    assert "INDEX job_delayed (queue=? AND run_at<?)" in promote
    assert "job_ready" in work
    assert "job_delayed" in work
    for found in (line, promote, work):
        assert "SCAN job" not in found
        assert "TEMP B-TREE" not in found


@pytest.mark.parametrize(
    "which",
    [Filter(status=Status.FAILED), Filter(dead=True), Filter(status=Status.COMPLETED, queue="q")],
    ids=["failed", "dead", "completed"],
)
async def test_listings_of_finished_jobs_are_read_in_order(harness: SQLiteHarness, which: Filter) -> None:
    condition, params = matching(which, 1)
    by, behind, place = order(which, None)
    sql = (
        sqlite(harness.store)
        ._sql["find"]
        .format(job=rows.JOB, matching=f"{condition} AND {behind}", order=by)
    )

    found = plan(harness.store, sql, **params, **place, limit=10)

    assert "job_finished" in found
    assert "B-TREE FOR ORDER BY" not in found  # ties of one millisecond may be sorted, the listing not


async def test_leasing_and_settling_touch_only_the_rows_they_are_about(harness: SQLiteHarness) -> None:
    """Cost must not grow with history."""
    sql = sqlite(harness.store)._sql

    lease = plan(harness.store, sql["lease"], seqs="[]", now=1, owner="w", leases="{}")
    read = plan(harness.store, sql["read"], seqs="[]")
    settle = plan(harness.store, sql["settle"], outcomes="[]", now=1)
    complete = plan(harness.store, sql["complete"], outcomes="[]", now=1)
    beat = plan(harness.store, sql["heartbeat"], beats="[]", now=1)

    for found in (lease, read):
        assert "SEARCH job USING INTEGER PRIMARY KEY" in found
    for found in (settle, complete, beat):
        assert "SEARCH job USING INDEX job_address (id=? AND queue=?)" in found
    for found in (lease, read, settle, complete, beat):
        assert "SCAN job" not in found


@pytest.mark.accepts("MQ-043", "MQ-044")
async def test_routine_events_are_recorded_on_request(tmp_path: Path) -> None:
    async with SQLiteHarness(tmp_path, "?events=all") as harness:
        [ref] = await enqueued(harness.store)
        [job] = await leased(harness.store)
        await harness.store.settle([completed(job.lease)])

        assert [event.type for event in await harness.store.events(job=ref)] == [
            "enqueued",
            "leased",
            "completed",
        ]


@pytest.mark.parametrize(
    "damage",
    [
        "payload = '{oops'",
        "payload = ''",
        "backoff = '7'",
        "run_at = -99999999999999999",
        "backoff = '[\"x\"]'",
    ],
)
async def test_a_job_that_cannot_be_read_is_put_aside_and_the_others_go_on(
    harness: SQLiteHarness, damage: str
) -> None:
    [_, bad, _] = refs = await enqueued(harness.store, 3)
    harness.rows(f"UPDATE job SET {damage} WHERE id = ?", (bad.id,))

    jobs = await leased(harness.store, 10)

    assert [job.ref for job in jobs] == [ref for ref in refs if ref != bad]
    put_aside = await look(harness.store, bad)
    assert (put_aside.status, put_aside.dead) == (Status.FAILED, True)
    assert put_aside.error is not None
    assert put_aside.error.code == "unreadable"
    assert [event.type for event in await harness.store.events()] == ["quarantined"]
    assert [event.type for event in await harness.store.events(job=bad)] == ["quarantined"]
    assert put_aside.payload == ("{oops" if "oops" in damage else "" if "payload" in damage else None)
    assert await leased(harness.store, 10) == []


@pytest.mark.accepts("REAP-090")
async def test_a_recovery_that_breaks_half_way_has_changed_nothing(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueued(harness.store, 3)
    before = await leased(harness.store, 3, seconds=10.0)
    await harness.age(11)
    taken: list[str] = []
    take_over = steps._take_over

    def breaking(tx: Transaction, job: Job, recovery: Recovery) -> Job:
        taken.append(job.id)
        if len(taken) == 2:
            raise StoreUnavailable("the disk is gone")
        return take_over(tx, job, recovery)

    monkeypatch.setattr(steps, "_take_over", breaking)
    with pytest.raises(StoreUnavailable):
        await harness.store.reclaim(Recovery("reaper", 30.0, 10))

    assert {(await look(harness.store, job.ref)).fence for job in before} == {job.fence for job in before}
    monkeypatch.undo()
    assert len((await harness.store.reclaim(Recovery("reaper", 30.0, 10))).jobs) == 3


async def test_a_running_job_that_cannot_be_read_does_not_hold_up_recovery(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 3)
    [_, bad, _] = jobs = await leased(harness.store, 3)
    harness.rows("UPDATE job SET payload = 'oops' WHERE id = ?", (bad.id,))
    await harness.age(61)

    taken = await harness.store.reclaim(Recovery("reaper", 30.0, 10))

    assert {job.ref for job in taken.jobs} == {job.ref for job in jobs} - {bad.ref}
    assert (await look(harness.store, bad.ref)).status is Status.FAILED


async def test_impossible_rows_are_impossible(harness: SQLiteHarness) -> None:
    await enqueued(harness.store)
    for change in (
        "status = 'lost'",
        "status = 'processing'",
        "status = 'completed'",
        "owner = 'somebody'",
        "lease_until = 1",
        "crashes = 1",
        "priority = 10",
        "attempts = -1, crashes = -1",
    ):
        with pytest.raises(apsw.ConstraintError):
            harness.rows(f"UPDATE job SET {change}")


async def test_shares_of_many_queues_are_honoured_together(harness: SQLiteHarness) -> None:
    for queue in "abc":
        await enqueued(harness.store, 10, queue=queue)

    jobs = await harness.store.lease({queue: Share(60.0, 2) for queue in "abc"}, 5, "w")

    assert len(jobs) == 5
    assert max([job.queue for job in jobs].count(queue) for queue in "abc") == 2


def test_the_umask_does_not_open_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        asyncio.run(_open_and_close(tmp_path))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "jobs.db").stat().st_mode) == 0o600


async def _open_and_close(folder: Path) -> None:
    async with open_store(f"sqlite:///{folder}/jobs.db") as store:
        await store.migrate()


async def test_a_second_store_of_a_process_does_not_cost_the_first_its_locks(harness: SQLiteHarness) -> None:
    """Closing any descriptor of a file drops all locks that the process has on it, SQLite's included.

    Another process that came and went would then take itself for the last one, and delete the log that is in use.
    """
    file = harness.url.removeprefix("sqlite:///")
    count = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(*c.execute('SELECT count(*) FROM job').fetchone()); c.close()"

    def seen_elsewhere() -> bytes:
        return subprocess.run([sys.executable, "-c", count, file], check=True, capture_output=True).stdout

    async with harness.store.twin():
        await enqueued(harness.store, 2)
        assert seen_elsewhere() == b"2\n"
        assert Path(f"{file}-wal").exists()
        await enqueued(harness.store, 3)
        assert seen_elsewhere() == b"5\n"
