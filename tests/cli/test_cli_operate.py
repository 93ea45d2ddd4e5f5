"""Verbs and the schema. Those of operators leave it as it is: what is missing, or too new for them, they say in one line.

And what status counts as recovered.
"""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.command import Command, said

from unstuck import open_store
from unstuck.protocol.retry import crash_fate
from unstuck.testing.conformance.given import enqueued, leased, trouble

VERBS = [
    "status", "jobs", "job x", "explain x", "dead", "top --once", "retry x", "cancel x", "edit x --priority 1",
    "release --owner x", "clean --yes", "pause mail", "resume mail", "schedules", "reap --once",
]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("", "lacks what this release needs (no such table"),
        ("PRAGMA user_version = 99", "the store's schema needs a release that knows version 99"),
    ],
    ids=["never made", "newer"],
)
def test_a_schema_that_does_not_fit_is_reported_in_one_line_and_left_alone(
    run: Command, tmp_path: Path, sql: str, told: str
) -> None:
    file = tmp_path / "jobs.db"
    file.touch()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(sql)

    for verb in VERBS:
        done = run(*verb.split())
        assert (done.returncode, done.stdout) == (1, ""), verb
        [line] = done.stderr.splitlines()
        assert line.startswith("unstuck: ")
        assert told in line, verb
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def test_doctor_names_indexes_that_are_missing_and_init_makes_them_again(
    run: Command, tmp_path: Path
) -> None:
    run("init")
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        for index in ("job_ready", "job_address"):
            connection.execute(f"DROP INDEX {index}")

    broken = run("doctor")
    assert broken.returncode == 1
    assert "indexes that are missing: job_address, job_ready: " in broken.stdout
    told = run("init").stderr.splitlines()
    assert told == [
        f"index {index} was missing and has been made again" for index in ("job_address", "job_ready")
    ]
    assert run("init").stderr == ""
    assert run("doctor").returncode == 0


@pytest.mark.parametrize("seen", [False, True], ids=["fell silent", "seen to die"])
def test_status_counts_what_was_taken_back_from_holders_however_they_were_lost(
    run: Command, tmp_path: Path, seen: bool
) -> None:
    async def lose() -> None:
        async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
            await store.migrate()
            await enqueued(store, 2)
            jobs = await leased(store, 2)
            await store.settle([crash_fate(job, trouble(), seen=seen) for job in jobs])

    asyncio.run(lose())

    head, line = run("status").stdout.splitlines()
    assert line.split()[head.split().index("RECOVERED")] == "2"


def test_the_store_that_the_file_of_the_folder_names_is_meant(run: Command, tmp_path: Path) -> None:
    run("init", "--write-config", "--store", "sqlite:///jobs.db", store=None)
    assert 'store = "sqlite:///jobs.db"' in (tmp_path / "unstuck.toml").read_text()

    assert run("enqueue", "send", "--queue", "mail", store=None).returncode == 0
    assert "mail" in run("status", store=None).stdout
    assert "mail" in run("status", "--store", "sqlite:///jobs.db", store="sqlite:///others.db").stdout
    (tmp_path / "unstuck.toml").write_text("nonsense")
    assert run("doctor", "--store", "sqlite:///jobs.db", store=None).stderr == ""
    assert "unstuck.toml is not valid TOML" in run("status", store=None).stderr


def test_the_store_that_is_used_is_named_where_there_are_two(run: Command, tmp_path: Path) -> None:
    (tmp_path / "unstuck.toml").write_text('store = "sqlite:///theirs.db"')
    run("init", store="sqlite:///mine.db")

    status = run("status", store="sqlite:///mine.db")
    assert status.stderr.startswith(
        "the store is sqlite:///mine.db, by UNSTUCK_STORE; unstuck.toml names sqlite:///"
    )
    assert status.stderr.endswith("theirs.db\n")
    assert run("status", "--store", "sqlite:///mine.db", store="sqlite:///others.db").stderr == ""
    (tmp_path / "unstuck.toml").write_text('store = "sqlite:///mine.db"')
    assert run("status", store="sqlite:///mine.db").stderr == ""


def test_a_worker_logs_which_store_it_uses_if_the_app_names_another(run: Command, tmp_path: Path) -> None:
    quiet = run("worker", "tasks:app", "--burst", store=None)
    (tmp_path / "unstuck.toml").write_text('store = "sqlite:///other.db"')
    by_file = run("worker", "tasks:app", "--burst", store=None)
    by_option = run("worker", "tasks:app", "--burst", "--store", "sqlite:///third.db", store=None)

    assert "names, and not that of the app" not in quiet.stderr
    assert re.search(
        r"other\.db, which unstuck\.toml names, and not that of the app: \S*elsewhere\.db", by_file.stderr
    )
    assert re.search(
        r"third\.db, which --store names, and not that of the app: \S*elsewhere\.db", by_option.stderr
    )


@pytest.mark.parametrize("verb", ["clean", "retry --queue mail", "cancel --queue mail"])
def test_nobody_is_asked_about_nothing(run: Command, verb: str) -> None:
    id_ = run("enqueue", "send", "--queue", "mail").stdout.strip()
    run("cancel", id_)

    done = run(*verb.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ed 0 jobs\n")


def test_a_job_is_found_by_its_key(run: Command) -> None:
    id_ = run("enqueue", "send", "--queue", "mail", "--key", "order-4711").stdout.strip()
    run("enqueue", "send", "--queue", "mail", "--key", "order-4712")

    assert run("explain", "order-4711").stdout == run("explain", id_).stdout
    assert said(run("job", "order-4711", "--queue", "mail", "--json"))["job"]["id"] == id_
    assert "order-4711" in run("jobs").stdout
    for args in (["order-4713"], ["order-4711", "--queue", "fax"]):
        missing = run("explain", *args)
        assert (missing.returncode, missing.stdout) == (2, "")
        assert missing.stderr.startswith(f"unstuck: no job has the id '{args[0]}'")

    run("enqueue", "send", "--queue", "fax", "--key", "order-4711")
    assert "both have a job with the key 'order-4711': say which queue" in run("explain", "order-4711").stderr


def test_a_job_for_a_queue_that_nobody_has_used_is_taken_with_a_word(run: Command) -> None:
    assert run("enqueue", "send", "--queue", "mail").stderr == ""  # somebody has to be the first
    assert run("enqueue", "send", "--queue", "mail").stderr == ""

    answer = run("enqueue", "send", "--queue", "mial")

    assert (answer.returncode, len(answer.stdout.strip())) == (0, 32)
    assert "queue 'mial' is not known, nobody has used it yet (did you mean 'mail'?)" in answer.stderr
