"""What is wrong with a PostgreSQL store, or with how it is named, is told in one line, and nothing spins."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.command import Command, said
from support.postgres import PASSWORD, Postgres
from support.spy import spied
from support.waiting import until_async
from support.work import at_work
from support.workers import Workers

from unstuck import ConfigError, Status, StoreUnavailable, Unstuck, open_store
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased, new, states

pytestmark = pytest.mark.anyio

NASTY = ["", "a" * 101, "a b", "a:b", "{a}", "a*", "a\nb", "😀", "../x", "'; DROP TABLE jobs; --", "`x"]


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


@pytest.fixture
def database(pg15: Postgres) -> str:
    """The URL of a database whose settings a test may change. It goes with its server."""
    return pg15.create_database()


def named(url: str) -> str:
    return url.rpartition("/")[2]


@pytest.mark.parametrize("name", NASTY)
async def test_a_bad_queue_name_never_reaches_the_database(harness: PostgresHarness, name: str) -> None:
    with pytest.raises(ConfigError, match="queue"):
        Unstuck(harness.url).queue(name)


async def test_names_that_look_like_sql_are_only_names_to_the_store(harness: PostgresHarness) -> None:
    queue, owner = "'; DROP TABLE jobs; --", "w'); DELETE FROM jobs; --"
    [ref] = await enqueued(harness.store, queue=queue, payload={"%s": "%(queue)s"}, lane="$1")
    [job] = await leased(harness.store, queue=queue, owner=owner)

    assert (ref.queue, job.owner, job.lane, job.payload) == (queue, owner, "$1", {"%s": "%(queue)s"})
    await harness.store.pause(queue, "{schema}")
    assert (await states(harness.store, queue)) == {"processing": 1}


@pytest.mark.parametrize(
    "schema", ["", "A", "a-b", "1a", "pg_x", "a b", "a" * 42, 'a"; DROP SCHEMA public; --', "ä"]
)
def test_a_bad_schema_name_is_refused_before_anything_is_opened(schema: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed: a lower-case letter or underscore") as refused:
        open_store(f"postgresql://u:hunter2secret@db.example.org/jobs?schema={schema}")
    assert "hunter2secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("password", "password authentication failed"),
        ("user", "password authentication failed|role .* does not exist"),
        ("database", 'database "nowhere" does not exist'),
    ],
)
@pytest.mark.parametrize("verb", [("status",), ("worker", "tasks:app")], ids=["status", "worker"])
def test_a_refusal_by_the_server_is_reported_in_one_line(
    pg15: Postgres, run: Command, what: str, why: str, verb: tuple[str, ...]
) -> None:
    url = {
        "password": pg15.url().replace(PASSWORD, "hunter2secret"),
        "user": pg15.url().replace("//postgres:", "//nobody:"),
        "database": pg15.url("nowhere"),
    }[what]

    answer = run(*verb, store=url)

    assert (answer.returncode, answer.stdout) == (2, "")
    line = answer.stderr.splitlines()[-1]
    assert line.startswith("unstuck: the database refuses us: ")
    assert re.search(why, line)
    assert "Traceback" not in answer.stderr
    for secret in ("hunter2secret", PASSWORD):
        assert secret not in answer.stderr


def test_nobody_there_is_reported_in_one_line(run: Command) -> None:
    answer = run("status", store="postgresql://u:hunter2secret@127.0.0.1:1/jobs")
    assert answer.returncode == 1
    [line] = answer.stderr.splitlines()
    assert "cannot be used now" in line
    assert "hunter2secret" not in line


async def test_a_worker_waits_for_a_server_that_is_not_there_yet_and_logs_it(tmp_path: Path) -> None:
    with Postgres("15") as server:

        class Place:
            url = server.url()
            store = open_store(url)

        async with Place.store as store:
            await store.migrate()
        await asyncio.to_thread(server.stop)
        with Workers(Place(), tmp_path) as workers:
            worker = workers.start("--processes", "0")
            await worker.until_line_async("does not answer, will try again in 0.[48] s", 60)
            assert worker.exit_code is None
            await asyncio.to_thread(server.start)
            async with Place.store:
                [ref] = await workers.enqueue("step", seconds=0.0)
                assert (await workers.over(ref, 60, worker)).status is Status.COMPLETED
            assert PASSWORD not in worker.log.read_text()


async def test_a_read_only_server_is_unavailable_and_used_again_when_it_is_not(
    pg15: Postgres, database: str
) -> None:
    async with open_store(database) as store:
        await store.migrate()
    pg15.execute(f"ALTER DATABASE {named(database)} SET default_transaction_read_only = on")
    async with open_store(database) as store:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.enqueue([new()])
        with pytest.raises(StoreUnavailable, match="read-only"):
            await leased(store)
        # A connection from then would stay read-only for ever.
        pg15.execute(f"ALTER DATABASE {named(database)} SET default_transaction_read_only = off")
        await store.enqueue([new()])
        assert await states(store) == {"pending": 1}


async def test_a_worker_on_a_read_only_server_does_not_spin(pg15: Postgres, database: str) -> None:
    name = named(database)
    app = Unstuck(database)

    @app.task(heartbeat=0.5)
    async def work() -> str:
        return "done"

    async with app:
        handle = await work.enqueue()
    pg15.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with app:
        book = await spied(app)
        async with at_work(app):
            await until_async(lambda: len(book.asked) > 3, 10, "it to try")
            began, before = time.monotonic(), len(book.asked)
            await asyncio.sleep(2.0)  # what is measured is how little happens
            rate = (len(book.asked) - before) / (time.monotonic() - began)
            assert rate < 10.0
            pg15.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
            assert await handle.result(15) == "done"


def test_the_doctor_warns_of_commits_that_are_not_waited_for(
    pg15: Postgres, database: str, run: Command
) -> None:
    assert run("init", store=database).returncode == 0
    assert not found(run, database, "synchronous_commit is off")
    pg15.execute(f"ALTER DATABASE {named(database)} SET synchronous_commit = off")

    [finding] = found(run, database, "synchronous_commit is off")
    assert finding["level"] == "warning"
    assert "SET synchronous_commit = on" in finding["fix"]


def found(run: Command, url: str, words: str) -> list[dict[str, str]]:
    answer = run("doctor", url, "--json", store=None)
    assert answer.returncode == 0
    return [finding for finding in said(answer) if words in finding["what"]]


def test_the_doctor_fails_a_server_that_does_not_sync(run: Command) -> None:
    with Postgres("15", settings={"fsync": "off"}) as server:
        run("init", store=server.url())
        answer = run("doctor", server.url(), store=None)
    assert answer.returncode == 1
    assert "FAILURE  fsync is off: a crash of the host can destroy the database" in answer.stdout
    assert "ALTER SYSTEM SET fsync = on" in answer.stdout
    assert PASSWORD not in answer.stdout + answer.stderr
