"""The reaper by itself: what it asks of a place, whom it believes dead, when it looks again, what it tells."""

import logging
import random
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from support.places import Both, Tables, held
from support.spy import Book, Spied

from unstuck import ConfigError, Status, StoreUnavailable
from unstuck.protocol.availability import Availability
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.foreign import Reaped
from unstuck.protocol.leases import Reclaimed, Recovery, Share
from unstuck.protocol.outcome import Settled
from unstuck.protocol.retry import judge
from unstuck.protocol.store import Store
from unstuck.recovery import processes
from unstuck.recovery import reaper as module
from unstuck.recovery.processes import identity
from unstuck.recovery.reaper import Reaper
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased

pytestmark = pytest.mark.anyio
AWAY = Availability()
AWAY.failing = True


def reaper_of(place: object, **options: Any) -> Reaper:
    return Reaper(cast(Store, place), **options)


@pytest.mark.parametrize("grace", [-1, float("nan"), "60s", 7 * 86400 + 1, True])
def test_a_grace_that_cannot_be_is_refused(grace: Any) -> None:
    with pytest.raises(ConfigError, match=r"^grace is .*: it must be a number from 0 to 604800 \(seconds\)$"):
        Reaper("sqlite:///jobs.db", grace=grace)


def test_an_interval_that_cannot_be_is_refused_with_its_bounds() -> None:
    with pytest.raises(
        ConfigError, match=r"^interval is -1: it must be a number from 0 to 86400 \(seconds\)$"
    ):
        Reaper("sqlite:///jobs.db", interval=-1)


def test_the_bounds_themselves_are_allowed() -> None:
    assert Reaper("sqlite:///jobs.db", interval=0, grace=0)
    assert Reaper("sqlite:///jobs.db", interval=86400, grace=7 * 86400)


async def test_tables_are_not_named_with_a_store(harness: SQLiteHarness) -> None:
    with pytest.raises(
        ConfigError, match=r"^tables are named together with the URL of their database, not with a store$"
    ):
        Reaper(harness.store, tables=["jobs"])


async def test_tables_are_opened_and_closed_with_the_block_and_nothing_runs_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Tables()
    opened: list[Any] = []

    @asynccontextmanager
    async def open_tables(url: str, named: Sequence[Layout]) -> AsyncIterator[Tables]:
        opened.append((url, [layout.table for layout in named]))
        yield place
        opened.append("closed")

    monkeypatch.setattr(module, "open_tables", open_tables)
    async with Reaper("postgresql://host/shop", tables=["jobs"]) as reaper:
        assert opened == [("postgresql://host/shop", ["jobs"])]
        assert len(place.asked) == 1, "it begins with a first recovery"
        running = reaper._running

    assert opened[1:] == ["closed"]
    assert running.done()


async def test_it_goes_by_the_name_it_was_given_or_by_its_process() -> None:
    assert reaper_of(Tables(), owner="me").owner == "me"
    assert reaper_of(Tables()).owner.startswith("reaper-")


async def test_only_its_queues_are_looked_after(harness: SQLiteHarness) -> None:
    mine = await one_leased(harness.store, queue="q", seconds=5.0)
    await enqueued(harness.store, queue="other")
    [other] = await leased(harness.store, queue="other", seconds=5.0)
    await harness.age(10)

    reaper = Reaper(harness.store, queues=["q"])
    assert [done.lease.ref for done in await reaper.recover()] == [mine.ref]
    assert reaper.troubles == (), "a store has no tables that could be in trouble"
    assert (await look(harness.store, other.ref)).status is Status.PROCESSING


async def test_what_it_asks_for_is_what_it_has_to_look_after() -> None:
    both = Both(Reclaimed([], 0, None), [])
    reaper = reaper_of(both, queues=["a"], grace=7.0, owner="me")
    await reaper.recover(of="w", cause="old age")

    asked = Recovery(
        owner="me",
        seconds=10.0,
        limit=200,
        queues=["a"],
        of=["w", "reaper-w"],
        blind=[],
        as_of=both.told,
        grace=7.0,
    )
    assert both.reclaims == both.asked == [asked]
    assert both.judge(held()) == judge(held(), "w", "old age")
    await reaper_of(both, owner="me").recover()
    assert both.asked[1:] == [Recovery("me", 10.0, 200, blind=[], as_of=both.told, grace=3600.0)]


async def test_a_store_and_tables_are_recovered_together_and_the_next_end_is_the_sooner_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "unstuck.reaper")
    theirs = judge(held("theirs"))
    both = Both(Reclaimed([held("ours")], 2, 9.0), [Settled.APPLIED], Reaped([theirs], 0, 4.0))
    reaper = reaper_of(both)
    done = await reaper.recover()

    assert [outcome.lease.id for outcome in done] == ["ours", "theirs"]
    assert reaper._next_end == 4.0
    assert [vars(record)["jobId"] for record in caplog.records if "alert" in vars(record)] == [
        "ours",
        "theirs",
    ]
    assert "gave a lease to 2 jobs that were processed without one" in caplog.messages
    both.taken = Reclaimed([], 0, 3.0)
    await reaper.recover()
    assert reaper._next_end == 3.0
    both.taken = Reclaimed([], 0, None)
    await reaper.recover()
    assert reaper._next_end is None


async def test_an_outcome_that_was_lost_is_not_ours_and_one_that_was_repeated_raises_no_second_alert(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = [held("applied"), held("repeated"), held("lost")]
    both = Both(Reclaimed(jobs, 0, None), [Settled.APPLIED, Settled.REPEATED, Settled.LOST])

    assert [outcome.lease.id for outcome in await reaper_of(both).recover()] == ["applied", "repeated"]
    assert [vars(record)["jobId"] for record in caplog.records if "alert" in vars(record)] == ["applied"]


async def test_a_store_that_does_not_answer_for_every_job_is_not_believed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        await reaper_of(Both(Reclaimed([held()], 0, None), [])).recover()


async def test_batches_are_drained_and_troubles_and_adoptions_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "unstuck.reaper")
    place = Tables(
        Reaped([judge(held("1"))], 3, 1.0, more=True, troubles=("jobs is locked",)),
        Reaped([judge(held("2"))], 0, 5.0, troubles=("clips has no id",)),
    )
    reaper = reaper_of(place)
    done = await reaper.recover()

    assert [outcome.lease.id for outcome in done] == ["1", "2"]
    assert (reaper._next_end, reaper.troubles) == (5.0, ("clips has no id",))
    told = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "unstuck.reaper"
    ]
    assert told[:3] == [
        ("INFO", "gave a lease to 3 jobs that were processed without one"),
        ("ERROR", "cannot recover: jobs is locked"),
        ("ERROR", "cannot recover: clips has no id"),
    ]


async def test_more_jobs_than_a_batch_are_taken_over_batch_by_batch(
    harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    await enqueued(harness.store, 4)
    await leased(harness.store, 4, seconds=5.0)
    await harness.age(10)
    book = Book()

    assert len(await reaper_of(Spied(harness.store, book)).recover()) == 4
    assert [(call.args[0].seconds, call.args[0].limit) for call in book.asked if call.name == "reclaim"] == [
        (10.0, 2)
    ] * 3


@pytest.mark.accepts("REAP-070")
@pytest.mark.parametrize(
    ("kind", "facts", "least", "most"),
    [
        (Tables, {}, 54.0, 66.0),
        (Both, {}, 2.5, 2.5),
        (Both, {"_interval": 1.0}, 0.9, 1.1),
        (Both, {"_interval": 0.1}, 0.2, 0.2),
        (Both, {"_next_end": 2.0}, 2.05, 2.15),
        (Tables, {"_next_end": 3.0}, 3.05, 3.15),
        (Tables, {"_next_end": 70.0}, 54.0, 66.0),
        (Both, {"_next_end": 0.0}, 0.2, 0.2),
        (Both, {"_spared": True}, 0.5, 0.5),
        (Both, {"_spared": True, "scan_ms": 800.0}, 1.6, 1.6),
        (Both, {"_spared": True, "scan_ms": 8000.0}, 2.5, 2.5),
        (Tables, {"_spared": True}, 54.0, 66.0),
        (Both, {"_availability": AWAY}, 2.0, 2.0),
        (Tables, {"_availability": AWAY}, 2.0, 2.0),
        (Both, {"_availability": AWAY, "_interval": 1.0}, 0.9, 1.1),
        (Both, {"_availability": AWAY, "_next_end": 0.5}, 2.0, 2.0),
    ],
)
def test_it_looks_again_in_time_but_never_all_the_time(
    kind: type[Tables], facts: dict[str, Any], least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper = reaper_of(Tables() if kind is Tables else Both(Reclaimed([], 0, None), []))
    for name, value in facts.items():
        setattr(reaper, name, value)

    for choice, pause in ((min, least), (max, most)):
        monkeypatch.setattr(random, "uniform", lambda low, high, choice=choice: choice(low, high))
        assert reaper._pause() == pytest.approx(pause)


async def test_whom_it_cannot_judge_or_who_lives_is_left_alone_and_who_is_gone_is_ended_once(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    me = identity()
    predecessor = f"{me.rpartition('/')[0]}/1"  # had our pid, and began at another time
    jobs = {}
    for name, who in {"gone": predecessor, "alive": me, "unknown": ""}.items():
        jobs[name] = await one_leased(harness.store, owner=name)
        await harness.store.heartbeat(WorkerInfo(id=name, host="h", pid=7, identity=who), [])
    book = Book()
    reaper = reaper_of(Spied(harness.store, book))
    await reaper.recover_dead()
    await reaper.recover_dead()

    found = {name: await look(harness.store, job.ref) for name, job in jobs.items()}
    assert {name: job.status for name, job in found.items()} == {
        "gone": Status.PENDING, "alive": Status.PROCESSING, "unknown": Status.PROCESSING,
    }  # fmt: skip
    assert found["gone"].error is not None
    assert found["gone"].error.message == "worker gone died: process 7 of h is gone"
    assert len(book.of("settle")) == 1
    assert len([call for call in book.asked if call.name == "reclaim"]) == 2, "the second finds nothing more"
    assert caplog.messages == [
        "recovered 1 jobs: worker gone died: process 7 of h is gone: 1 requeued, 0 failed"
    ]


async def test_each_recovery_is_logged_and_those_without_a_find_once_an_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "unstuck.reaper")
    place = Tables()
    reaper = reaper_of(place, interval=60.0)
    await reaper.recover(of="w", cause="x")
    assert caplog.messages == []
    for _ in range(3):
        await reaper.recover()
    assert caplog.messages == ["recovered 0 jobs: their leases ran out: 0 requeued, 0 failed"]
    assert caplog.records[0].levelname == "INFO"
    reaper._logged -= 30.0
    await reaper.recover()
    assert len(caplog.messages) == 1
    reaper._logged -= 30.0
    await reaper.recover()
    assert len(caplog.messages) == 2


async def test_the_death_of_one_worker_does_not_silence_the_next_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "unstuck.reaper")
    reaper = reaper_of(Tables(Reaped([judge(held("1"), "w", "x")], 0, None)))
    await reaper.recover(of="w", cause="x")
    await reaper.recover()

    assert [message for message in caplog.messages if message.startswith("recovered")] == [
        "recovered 1 jobs: worker w died: x: 0 requeued, 1 failed",
        "recovered 0 jobs: their leases ran out: 0 requeued, 0 failed",
    ]


async def test_what_it_did_is_reported_in_numbers(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [judge(held("1")), judge(held("2", attempts=1)), judge(held("3", attempts=1))]
    reaper = reaper_of(Tables(Reaped(outcomes, 0, None)), owner="me")
    assert reaper.last_scan() is None
    began = time.monotonic()
    await reaper.recover()
    took = (time.monotonic() - began) * 1000

    [told] = [record for record in caplog.records if record.name == "unstuck.reaper"]
    assert told.levelname == "WARNING"
    assert told.getMessage() == "recovered 3 jobs: their leases ran out: 2 requeued, 1 failed"
    numbers = {
        name: value for name, value in vars(told).items() if name.startswith(("reaper.", "recov", "jobIds"))
    }
    assert numbers == {
        "recovered": 3,
        "reaper.requeues": 2,
        "reaper.failures": 1,
        "reaper.scan_duration_ms": reaper.scan_ms,
        "jobIds": ["1", "2", "3"],
    }
    assert reaper.scan_ms is not None
    assert 0 < reaper.scan_ms <= took
    assert reaper.scan_ms == round(reaper.scan_ms, 3)
    assert reaper.last_scan() == ("me", reaper.scan_ms)


@pytest.mark.slow
async def test_a_worker_is_buried_again_if_that_failed(harness: SQLiteHarness) -> None:
    """If the store fails while the leases of a dead worker are ended, the next pass ends them."""
    from unstuck.protocol.fleet import WorkerInfo
    from unstuck.protocol.job import NewJob

    with subprocess.Popen(["sleep", "60"]) as process:
        namespace = processes._namespace()
        identity = f"{namespace}/{process.pid}/{processes._stat(process.pid)[1]}"
        process.kill()
    await harness.store.heartbeat(WorkerInfo(id="dead", host="here", pid=process.pid, identity=identity), [])
    await harness.store.enqueue([NewJob(queue="default", task="t", id="1")])
    await harness.store.lease({"default": Share(600.0, 1)}, 1, "dead")

    class Once:
        failed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(harness.store, name)

        async def reclaim(self, *args: Any, **kwargs: Any) -> Any:
            if not self.failed:
                self.failed = True
                raise StoreUnavailable("away for a moment")
            return await harness.store.reclaim(*args, **kwargs)

    reaper = Reaper(Once())
    await reaper.begin()
    await reaper.begin()
    [counts] = await harness.store.count()
    assert counts.processing == 0
