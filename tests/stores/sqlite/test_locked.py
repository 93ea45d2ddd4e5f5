"""What is to be seen while another process holds the file's write lock: everything, at once, and who it is."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.processes import Child

from unstuck.stores.sqlite import lock
from unstuck.stores.sqlite.connection import connect, create
from unstuck.testing import SQLiteHarness

# As a program of somebody else's would: in a process of its own, with another SQLite.
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(run: Command, tmp_path: Path) -> Iterator[Child]:
    """A process that has the write lock of a store with a job and does not let go."""
    assert run("enqueue", "send", "--queue", "mail", "--key", "one").returncode == 0
    (tmp_path / "stock_import.py").write_text(HOLDER)
    argv = [sys.executable, str(tmp_path / "stock_import.py"), str(tmp_path / "jobs.db")]
    with Child(argv, tmp_path / "holder.log") as child:
        child.until_line("holds", timeout=60)
        yield child


def test_verbs_that_only_look_do_not_wait_for_a_writer(run: Command, holder: Child) -> None:
    [job] = json.loads(run("jobs", "--json").stdout)["jobs"]
    for verb in (
        ["status"],
        ["explain", job["id"]],
        ["dead"],
        ["retry", "--queue", "mail", "--dry-run"],
        ["verify"],
    ):
        try:
            answer = run(*verb)  # without the lock the command gives up after 60 s, the test after 30 s
        except subprocess.TimeoutExpired:
            pytest.fail(f"unstuck {verb[0]} waited for the write lock")
        assert answer.returncode == 0, answer.stderr
    assert holder.exit_code is None


@pytest.mark.anyio
async def test_who_prepares_a_store_that_lacks_nothing_waits_for_nobody(harness: SQLiteHarness) -> None:
    theirs = connect(harness.url.removeprefix("sqlite:///"))
    theirs.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(30):  # a write would give up after 60 s
        await harness.store.migrate()
    theirs.close()


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("jobs.db", "jobs.db-wal")]


def test_the_doctor_names_who_holds_the_write_lock(run: Command, holder: Child, tmp_path: Path) -> None:
    before = contents(tmp_path)
    answer = run("doctor", "--json")
    told = [one for one in json.loads(answer.stdout) if "write lock" in one["what"]]
    assert (answer.returncode, [one["level"] for one in told]) == (1, ["failure"])
    if Path("/proc/locks").exists():
        assert told[0]["what"].startswith(f"process {holder.pid} (")
        assert told[0]["fix"].endswith(f"kill {holder.pid}")
    else:
        assert "fuser" in told[0]["fix"]
    assert contents(tmp_path) == before

    holder.kill()
    assert "write lock" not in run("doctor", "--json").stdout


def test_a_lock_that_goes_round_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the doctor tries, somebody writes; but it is a new transaction each time."""
    path = str(tmp_path / "jobs.db")
    create(path)
    theirs = connect(path)
    theirs.execute("CREATE TABLE note (text); PRAGMA application_id = 1970172788; BEGIN IMMEDIATE")

    def write_on(_: str) -> None:
        theirs.execute("INSERT INTO note VALUES ('mine'); COMMIT; BEGIN IMMEDIATE")

    monkeypatch.setattr(lock, "_holder", write_on)
    monkeypatch.setattr(lock, "WORTH_A_WORD", 20.0)  # on a machine that is slow, too
    monkeypatch.setattr(lock, "TOO_LONG", 25.0)
    assert lock.held(path) == []
    theirs.close()


def test_it_is_seen_whether_one_transaction_keeps_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    create(path)
    theirs = connect(path)
    theirs.execute("PRAGMA application_id = 1970172788")

    assert not lock.lasts(path, 60.0)
    theirs.execute("BEGIN IMMEDIATE")
    assert lock.lasts(path, 0.1)
    theirs.execute("COMMIT")
    assert not lock.lasts(path, 60.0)
    theirs.close()
