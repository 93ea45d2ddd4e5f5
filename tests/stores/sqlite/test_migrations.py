"""Migrations of SQLite, beside a release that knows only the schema before."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from unstuck import SchemaError, open_store
from unstuck.protocol.job import Category, Job, Status
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Outcome, Settled, completed, failed
from unstuck.protocol.store import Store
from unstuck.stores.shared.statements import statements
from unstuck.testing.conformance.given import counts, enqueued, leased, one_leased, states, trouble
from unstuck.testing.conformance.spacing import throttled

pytestmark = pytest.mark.anyio

# What the release before halts had columns asks of this table.
PAUSE = """
INSERT INTO queue (name, paused_at, paused_why) VALUES (:queue, :now, :why)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at), paused_why = excluded.paused_why
"""
RESUME = "UPDATE queue SET paused_at = NULL, paused_why = NULL WHERE name = :queue AND paused_at IS NOT NULL"
QUEUES = "SELECT name, paused_why FROM queue WHERE paused_at IS NOT NULL"
# How it adds, leases and ends a job.
ENQUEUE = """
INSERT INTO job (queue, id, task, payload, created_at, run_at, rank, max_attempts) VALUES ('q', 'theirs', 't', '1', 1, 1, 1, 3)
"""
LEASE = """
UPDATE job SET status = 'processing', rank = NULL, attempts = attempts + 1, fence = 5, owner = 'old', lease_until = 1 << 42
WHERE id = :id
"""
COMPLETE = """
UPDATE job SET status = 'completed', finished_at = 9, settled_fence = fence, settled = 'completed', owner = NULL, lease_until = NULL
WHERE id = :id AND fence = 5
"""
WHY = "CRITICAL: the disk is broken"


class Previous:
    """A process of that release, which has opened the file and goes on."""

    def __init__(self, file: Path) -> None:
        self.file = apsw.Connection(str(file))
        self.now = 1_000_000

    def pause(self, queue: str, why: str) -> None:
        """Also how it halts."""
        self.now += 1
        self.file.execute(PAUSE, {"queue": queue, "now": self.now, "why": why})

    def resume(self, queue: str) -> bool:
        self.file.execute(RESUME, {"queue": queue})
        return self.file.changes() > 0

    def paused(self) -> dict[str, str]:
        return dict(self.file.execute(QUEUES))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def previous(file: Path) -> Iterator[Previous]:
    """It has made the file."""
    known = list(statements("unstuck.stores.sqlite", "sql/migrations").values())[:2]
    process = Previous(file)
    process.file.execute(";".join(known))
    process.file.execute(
        f"PRAGMA application_id = {0x756E7374}; PRAGMA user_version = 2; PRAGMA journal_mode = wal"
    )
    yield process
    process.file.close()


def critical(job: Job) -> Outcome:
    return failed(job.lease, trouble(Category.CRITICAL), halt=WHY)


async def stopped(store: Store, queue: str = "q") -> tuple[str | None, str | None]:
    of = await counts(store, queue)
    return of.paused, of.halted


async def test_halts_of_the_previous_release_are_halts_and_its_pauses_are_pauses(
    previous: Previous, file: Path
) -> None:
    previous.pause("halted", WHY)
    previous.pause("paused", "by hand")
    previous.pause("critical", "CRITICAL fix is being deployed")
    previous.pause("resumed", WHY)
    previous.resume("resumed")

    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()

        assert {of.queue: (of.paused, of.halted) for of in await store.count()} == {
            "halted": (None, WHY),
            "paused": ("by hand", None),
            "critical": ("CRITICAL fix is being deployed", None),
        }
        assert await store.pause("halted", None)
        assert await stopped(store, "halted") == (None, None)
    assert "halted" not in previous.paused()


async def test_a_file_that_was_migrated_is_still_one_that_the_previous_release_opens(
    previous: Previous, file: Path
) -> None:
    """It refuses a user_version above its own, and makes a schema below it."""
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        await store.migrate()
        assert next(finding.what for finding in await store.checkup()) == "schema version 6"
    async with open_store(f"sqlite:///{file.with_name('new.db')}") as store:
        await store.migrate()
        await enqueued(store)

    for name in ("jobs.db", "new.db"):
        opened = apsw.Connection(str(file.with_name(name)))
        assert opened.pragma("user_version") == 2
        assert list(opened.execute("SELECT max(version) FROM migration")) == [(6,)]
        opened.close()


async def test_the_previous_release_obeys_shows_and_lifts_a_halt(previous: Previous, file: Path) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        job = await one_leased(store)
        await enqueued(store)
        await store.settle([critical(job)])
        assert previous.paused() == {"q": WHY}  # which it takes for a halt, and leases nothing

        assert previous.resume("q")
        assert await stopped(store) == (None, None)
        assert len(await leased(store)) == 1
        assert await store.pause("q", None) is False


async def test_what_the_previous_release_left_of_a_halt_is_no_reason_of_its_next_pause(
    previous: Previous, file: Path
) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        previous.now = 10**15  # behind our own time
        await enqueued(store, 2)
        first, second = await leased(store, 2)
        await store.settle([critical(first)])
        previous.resume("q")

        previous.pause("q", "by hand")
        assert await stopped(store) == ("by hand", None)
        await store.settle([critical(second)])
        assert await stopped(store) == ("by hand", WHY)
        assert await states(store) == {"failed": 2}
        assert previous.paused() == {"q": "by hand"}

        previous.resume("q")
        previous.pause("q", WHY)  # a worker of that release halts: from now on that is a pause
        assert await stopped(store) == (WHY, None)


async def test_a_pause_by_the_previous_release_leaves_a_halt(previous: Previous, file: Path) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        job = await one_leased(store)
        await store.settle([critical(job)])

        previous.pause("q", "by hand")

        assert await stopped(store) == ("by hand", WHY)


async def test_the_error_about_a_file_that_is_not_migrated_yet_names_the_next_step(
    previous: Previous, file: Path
) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        with pytest.raises(SchemaError, match=r"halted_at.*unstuck init"):
            await store.count()
        found = [finding for finding in await store.checkup() if finding.level == "warning"]
        assert ("schema version 2 of 6", "run: unstuck init") in [(one.what, one.fix) for one in found]


async def test_records_come_to_a_file_while_a_release_that_has_none_works_on_it(file: Path) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        job = await one_leased(store)
        opened = apsw.Connection(str(file))
        opened.execute(
            "DROP TABLE record; DROP TABLE spacing; DELETE FROM migration WHERE version >= 4; DROP INDEX job_expires;"
            "ALTER TABLE job DROP COLUMN expires_at; ALTER TABLE job DROP COLUMN on_failure"
        )
        opened.close()
        with pytest.raises(SchemaError, match=r"record.*unstuck init"):
            await store.keep("k", "n", 1)
        assert "schema version 3 of 6" in [finding.what for finding in await store.checkup()]

        async with store.twin() as newer:
            await newer.migrate()
            assert (await newer.keep("k", "n", 1)).applied
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_spacing_comes_to_a_file_while_a_release_that_has_none_works_on_it(file: Path) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        job = await one_leased(store)
        opened = apsw.Connection(str(file))
        opened.execute(
            "DROP TABLE spacing; DELETE FROM migration WHERE version >= 5; DROP INDEX job_expires;"
            "ALTER TABLE job DROP COLUMN expires_at; ALTER TABLE job DROP COLUMN on_failure"
        )
        opened.close()
        with pytest.raises(SchemaError, match=r"spacing.*unstuck init"):
            await store.enqueue([throttled()])

        async with store.twin() as newer:
            await newer.migrate()
            assert [answer.created for answer in await newer.enqueue([throttled(), throttled()])] == [
                True,
                False,
            ]
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]
        assert await states(store) == {"completed": 1, "pending": 1}


async def test_a_release_that_knows_no_expiry_works_beside_ours(previous: Previous, file: Path) -> None:
    """What it enqueues does not expire. What it takes late is its to end."""
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        previous.file.execute(ENQUEUE)
        [late] = await enqueued(store, expires=0.001)

        previous.file.execute(LEASE, {"id": late.id})
        assert (await store.reclaim(Recovery("reaper", 10.0, 10))).jobs == []
        found = {job.id: job for job in (await store.find(Filter())).jobs}
        assert (found["theirs"].expires_at, found[late.id].attempts) == (None, 1)

        [job] = await leased(store)
        assert job.id == "theirs"
        previous.file.execute(COMPLETE, {"id": late.id})
        assert await states(store) == {"processing": 1, "completed": 1}


async def test_a_newer_release_may_drop_an_index_that_ours_would_make_again(file: Path) -> None:
    async with open_store(f"sqlite:///{file}") as store:
        await store.migrate()
        newer = apsw.Connection(str(file))
        newer.execute("INSERT INTO migration VALUES (7, '007_later', 1); DROP INDEX job_lane_running")
        newer.close()

        await store.migrate()

        await enqueued(store)
        [job] = await leased(store)
        assert job.status is Status.PROCESSING
        assert next(finding.what for finding in await store.checkup()) == "schema version 7"
        reading = apsw.Connection(str(file))
        made = list(reading.execute("SELECT name FROM sqlite_schema WHERE name = 'job_lane_running'"))
        reading.close()
        assert made == []
