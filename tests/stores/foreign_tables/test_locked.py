"""One of several tables is locked by somebody's transaction, or not what it was: the others are answered, and it is said why."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.command import unstuck
from support.product import TABLES, Product, tables, taken
from support.sessions import Session, session
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, Jobs, Reaper, SchemaError, Unstuck, open_store
from unstuck.contrib.pipeline import pipeline
from unstuck.operations.doctor import doctor, doctor_tables
from unstuck.operations.metrics import _of_queues
from unstuck.protocol.errors import PartlySettled
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Beat, Share, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed
from unstuck.protocol.store import Store
from unstuck.stores import open_tables
from unstuck.stores.postgres.foreign import locked
from unstuck.stores.postgres.foreign.locked import Locked
from unstuck.testing.conformance.given import new
from unstuck.worker.outbox import Outbox

pytestmark = pytest.mark.anyio
on_one_server = pytest.mark.parametrize("postgres_server", ["15"], indirect=True)
NOWHERE = "6d1ad7f5-3c55-4d4d-8b39-7f3a1de9ae5c"
QUEUES = ("mail", "jobs", "asr_jobs")  # the first is ours
SOON = 10.0  # half of what an answer may take


@pytest.fixture
async def held(shop: Product, store: Store) -> list[Job]:
    """One job of each queue, leased."""
    await store.enqueue([new(queue="mail")])
    await shop.add()
    await shop.add("asr_jobs")
    return [job for queue in QUEUES for job in await taken(store, table=queue)]


@pytest.fixture
async def migration(shop: Product, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    """A deployment that has locked asr_jobs, and forgot to commit. The store was there before."""
    monkeypatch.setattr(locked, "PATIENCE", "200ms")
    async with session(shop.url, name="deploy-migration") as opened:
        await opened.execute("LOCK TABLE asr_jobs IN ACCESS EXCLUSIVE MODE")
        yield opened


async def test_the_numbers_of_the_other_tables_are_reported(
    shop: Product, store: Store, migration: Session
) -> None:
    await shop.add()
    of = {of.queue: of for of in await store.count()}

    assert (of["jobs"].pending, of["jobs"].trouble) == (1, None)
    assert "table asr_jobs is locked and cannot be read" in (of["asr_jobs"].trouble or "")
    [jobs, *_] = _of_queues(list(of.values()))
    assert {sample.labels["queue"] for sample in jobs.samples} == {"jobs"}, "0 would be a false number"
    await migration.rollback()
    assert [of.trouble for of in await store.count()] == [None, None]


async def test_the_leases_of_the_other_queues_are_renewed(
    store: Store, held: list[Job], migration: Session
) -> None:
    beats = [Beat(job.lease, 60.0) for job in held]
    pulse = await asyncio.wait_for(store.heartbeat(WorkerInfo(id="w", queues=QUEUES), beats), SOON)

    ours, jobs, _ = held
    assert pulse.verdicts == {ours.lease: Verdict.HELD, jobs.lease: Verdict.HELD}, "of one nobody knows yet"


async def test_jobs_of_the_other_queues_are_found_and_leased(
    shop: Product, store: Store, held: list[Job], migration: Session
) -> None:
    id_ = await shop.add()
    await asyncio.wait_for(store.wait(["asr_jobs", "jobs"], 60.0), SOON)

    share = dict.fromkeys(QUEUES, Share(20.0, 5))
    assert [job.id for job in await asyncio.wait_for(store.lease(share, 5, "w"), SOON)] == [id_]


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
async def test_outcomes_of_the_other_queues_are_written_and_the_holder_of_the_rest_is_named(
    shop: Product, store: Store, held: list[Job], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(locked, "PATIENCE", "200ms")
    outcomes = [completed(job.lease) for job in held]
    outbox = Outbox(store)
    for outcome in outcomes:
        outbox.add(outcome)
    async with session(shop.url, name="deploy-index") as deployment:
        await deployment.execute(f"LOCK TABLE asr_jobs IN {mode} MODE".encode())
        written = await asyncio.wait_for(outbox.send(), SOON)
        assert written == [(outcome, Settled.APPLIED) for outcome in outcomes[:2]]

        told = r"asr_jobs is locked and cannot be changed: session \d+ \(.*deploy-index\) has locked asr_jobs"
        with pytest.raises(Locked, match=told):
            await outbox.send()
        with pytest.raises(PartlySettled, match=told) as caught:
            await store.settle(outcomes)
        assert caught.value.answers == [Settled.REPEATED, Settled.REPEATED, None]
        await deployment.rollback()

    assert await outbox.send() == [(outcomes[2], Settled.APPLIED)]
    assert len(outbox) == 0


async def test_a_row_that_somebody_has_locked_is_not_waited_for_by_those_who_have_other_rows_to_end(
    shop: Product, store: Store, held: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked, "PATIENCE", "200ms")
    async with session(shop.url) as product:
        await product.execute("UPDATE asr_jobs SET updated_at = now()")
        with pytest.raises(PartlySettled, match="table asr_jobs, or a row of it, is locked"):
            await asyncio.wait_for(store.settle([completed(job.lease) for job in held]), SOON)

    assert await shop.status(held[1].id) == "done"


async def test_a_session_that_stands_in_line_for_a_row_before_us_is_not_reported_to_have_locked_the_table(
    shop: Product, store: Store, held: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked, "PATIENCE", "200ms")
    change = b"UPDATE asr_jobs SET updated_at = now()"

    async def stands_in_line() -> bool:
        return bool(await shop.say("SELECT 1 FROM pg_locks WHERE locktype = 'tuple'"))

    async with session(shop.url, name="next-in-line") as other:
        async with session(shop.url) as product:
            await product.execute(change)
            waiting = asyncio.create_task(other.execute(change))
            await until_async(stands_in_line, 20, "the other to wait for the row")
            told = "table asr_jobs, or a row of it, is locked and cannot be changed; see"
            with pytest.raises(Locked, match=told):
                await asyncio.wait_for(store.settle([completed(held[2].lease)]), SOON)
        await waiting


async def test_who_waits_to_lock_a_table_behind_somebody_who_reads_it_is_named_and_so_is_he(
    shop: Product, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commonest jam: neither of them has locked anything against readers, and yet all stand behind the one who waits."""
    monkeypatch.setattr(locked, "PATIENCE", "200ms")
    async with session(shop.url, name="report") as report, session(shop.url, name="deploy") as deploy:
        reader, waiter = report.info.backend_pid, deploy.info.backend_pid
        await report.execute("SELECT FROM asr_jobs")
        altering = asyncio.create_task(deploy.execute("ALTER TABLE asr_jobs ADD note text"))

        async def waits() -> list[tuple[object, ...]]:
            return await shop.say("SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted")

        await until_async(waits, 10, "the ALTER TABLE to wait")
        [found] = [one for one in await store.checkup() if "asr_jobs is locked" in one.what]
        await report.rollback()
        await altering

    assert f": session {waiter} (" in found.what
    assert "deploy) waits to lock asr_jobs, behind session " in found.what
    assert f"behind session {reader} (" in found.what
    assert "report), idle in its transaction for " in found.what
    assert f"pg_terminate_backend({reader})" in found.fix
    assert f"or end the one that waits: SELECT pg_terminate_backend({waiter})" in found.fix


async def test_a_verb_with_ids_names_the_locked_table_they_may_be_in_unless_another_queue_is_named(
    shop: Product, store: Store, migration: Session
) -> None:
    """Another row of that id may be in there, and of several only some would be found."""
    id_ = await shop.add()
    jobs = Jobs(store)
    told = rf"session {migration.info.backend_pid} \(.*deploy-migration\).*; or say which queue has it"
    for ids in ((NOWHERE,), (id_,), (id_, NOWHERE)):
        with pytest.raises(Locked, match=told):
            await store.find(Filter(ids=ids))
    with pytest.raises(Locked):
        await jobs.cancel([id_, NOWHERE])
    assert await shop.status(id_) == "queued"

    assert (await jobs.get(id_, "jobs")).queue == "jobs"
    assert await jobs.cancel([id_], "jobs") == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DROP TABLE asr_jobs", "there is no table 'asr_jobs'"),
        ("ALTER TABLE asr_jobs DROP COLUMN lease_expires_at", "has no column lease_expires_at"),
    ],
)
async def test_a_table_that_is_not_what_it_was_is_reported_and_the_others_are_looked_at(
    shop: Product, store: Store, change: str, why: str
) -> None:
    id_ = await shop.add()
    await store.count()  # the tables are known from now on
    await shop.say(change)
    await store.count()

    of = {of.queue: of for of in await store.count()}
    assert (of["jobs"].pending, of["jobs"].trouble) == (1, None)
    assert why in (of["asr_jobs"].trouble or "")
    assert (await Jobs(store).get(id_)).queue == "jobs", "nobody could do anything with what is in there"
    with pytest.raises(SchemaError, match=why):
        await Jobs(store).get(NOWHERE)
    findings = await doctor(store, seconds=0)
    assert [one.level for one in findings if why in one.what] == ["failure"]
    assert any("in queue jobs, and no worker takes it" in one.what for one in findings)
    async with open_tables(shop.url + TABLES) as tables:
        found, _ = await doctor_tables(tables)
    assert [one.level for one in found if why in one.what] == ["failure"]
    assert any(one.what.startswith("table jobs: 1 wait") for one in found)


@pytest.mark.parametrize("whole", [True, False], ids=["store", "tables"])
async def test_the_doctor_names_who_has_locked_a_table_and_examines_the_others(
    shop: Product, store: Store, migration: Session, whole: bool
) -> None:
    id_ = await shop.stuck()
    await shop.say("ALTER TABLE jobs DROP COLUMN stage")

    if whole:
        findings = await doctor(store, seconds=0)
    else:
        async with open_tables(shop.url + TABLES) as tables:
            findings, stuck = await doctor_tables(tables)
            assert [row.id for row in stuck] == [id_]

    [found] = [one for one in findings if "asr_jobs is locked" in one.what]
    assert found.level == "failure"
    assert "deploy-migration) has locked asr_jobs, idle in its transaction for " in found.what
    assert f"pg_terminate_backend({migration.info.backend_pid})" in found.fix
    assert any("table jobs has no stage" in one.what for one in findings)


async def test_verbs_answer_beside_a_locked_table(shop: Product, migration: Session, tmp_path: Path) -> None:
    told = unstuck(tmp_path, "status", "--json", store=shop.url + TABLES)
    assert {of["queue"]: of["trouble"] is None for of in json.loads(told.stdout)} == {
        "jobs": True,
        "asr_jobs": False,
    }
    assert f"session {migration.info.backend_pid} (" in told.stderr
    hidden = unstuck(tmp_path, "explain", NOWHERE, store=shop.url + TABLES)
    assert (hidden.returncode, "table asr_jobs is locked" in hidden.stderr) == (1, True)


@on_one_server
async def test_a_table_that_is_gone_keeps_no_other_queue_from_its_work(shop: Product) -> None:
    app, done = Unstuck(shop.url + TABLES), []
    for table in ("jobs", "asr_jobs"):
        app.queue(table, **pipeline())
        app.task(name=table, queue=table)(_nothing)

    @app.task(queue="mail")
    async def send(number: int) -> None:
        done.append(number)

    await shop.add("asr_jobs")
    async with app, at_work(app):
        await shop.say("ALTER TABLE jobs RENAME TO moved")
        for number in range(5):
            await send.enqueue(number)
        await until_async(lambda: len(done) == 5, 10, "the mail to be sent")
        jobs = await app.store()

        async def finished() -> bool:
            return await shop.say("SELECT status FROM asr_jobs") == [("done",)]

        await until_async(finished, 10, "the row of the other table to end")
        await shop.say("ALTER TABLE moved RENAME TO jobs")
        id_ = await shop.add()

        async def served() -> bool:
            return await shop.status(id_) == "done"

        await until_async(served, 10, "the table to be served again")
        assert [of.processing for of in await jobs.count()] == [0, 0, 0]


async def _nothing(row: dict[str, Any]) -> None:
    """A handler that is content."""


@on_one_server
async def test_beats_and_ends_of_others_are_written_although_one_table_is_gone(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        for table in ("jobs", "asr_jobs"):
            await shop.add(table)
        await store.enqueue([new(queue="mail")])
        held = [
            *await taken(store),
            *await taken(store, table="asr_jobs"),
            *await store.lease({"mail": Share(9, 1)}, 1, "w"),
        ]
        await shop.say("ALTER TABLE jobs RENAME TO moved")

        pulse = await store.heartbeat(
            WorkerInfo(id="w", queues=("jobs", "asr_jobs")), [Beat(job.lease, 300) for job in held]
        )
        assert pulse.verdicts == {job.lease: Verdict.HELD for job in held[1:]}
        outcomes = [completed(job.lease) for job in held]
        with pytest.raises(SchemaError, match="jobs"):
            await store.settle(outcomes)
        await shop.say("ALTER TABLE moved RENAME TO jobs")
        assert await store.settle(outcomes) == [Settled.APPLIED, Settled.REPEATED, Settled.REPEATED]


@on_one_server
async def test_a_settle_looks_again_at_a_table_that_lost_a_column(shop: Product) -> None:
    async with open_store(shop.url + TABLES) as store:
        await store.migrate()
        await shop.add()
        [job] = await taken(store)
        await shop.say("ALTER TABLE jobs DROP COLUMN fail_reason")
        with pytest.raises(SchemaError, match="table 'jobs' has changed"):
            await store.settle([completed(job.lease)])
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]


@on_one_server
async def test_a_table_that_is_locked_as_a_whole_does_not_keep_others_from_recovery(shop: Product) -> None:
    await shop.say("CREATE TABLE z_jobs (LIKE jobs INCLUDING ALL)")
    first, last = await shop.stuck("asr_jobs"), await shop.stuck("z_jobs")
    async with session(shop.url, name="deploy") as other:
        await other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        async with tables(shop.url, "asr_jobs", "jobs", "z_jobs") as opened:
            reaper = Reaper(opened)
            done = {outcome.lease.id for outcome in await asyncio.wait_for(reaper.recover(), 10)}
            assert (done, opened.tally.total()) == ({first, last}, 2)
            assert "deploy) has locked jobs, idle in its transaction" in reaper.troubles[0]


@on_one_server
async def test_one_table_that_is_missing_does_not_hide_the_others(shop: Product) -> None:
    await shop.stuck()
    async with tables(shop.url, "gone", "jobs") as opened:
        assert [of.queue for of in await opened.count()] == ["jobs"]
        assert "there is no table 'gone'" in json.dumps([finding.what for finding in await opened.checkup()])
    with pytest.raises(ConfigError, match="together with the URL"):
        Reaper(opened, tables=["jobs"])
