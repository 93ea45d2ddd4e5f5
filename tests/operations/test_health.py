"""Health: what workers and queues add up to."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from unstuck import ConfigError, Jobs, Reaper
from unstuck.operations.health import HealthStatus, WorkerHealth, health_status
from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.operators import Counts
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, one_leased

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


def worker(id: str = "w", *queues: str, silent: float = 1.0, **health: Any) -> WorkerInfo:
    seen = NOW - timedelta(seconds=silent)
    return WorkerInfo(id=id, queues=queues or ("mail",), seen_at=seen, health=Health(**health))


def overall(workers: list[WorkerInfo], *counts: Counts, queue: str | None = None) -> HealthStatus:
    return health_status(workers, counts, NOW, queue)


def test_living_workers_and_no_trouble_are_healthy() -> None:
    status = overall([worker(successes=3, failures=1), worker("v")], Counts(queue="mail", pending=4))

    assert (status.status, status.why, status.workers, status.consuming) == ("HEALTHY", "", 2, True)
    assert status.success_rate == 0.75


def test_no_history_has_no_success_rate() -> None:
    assert overall([worker()]).success_rate is None


@pytest.mark.accepts("EMB-087")
@pytest.mark.parametrize("worst", ["HEALTHY", "DEGRADED", "CRITICAL"])
def test_the_worst_worker_decides(worst: str) -> None:
    status = overall([worker(), worker("sick", status=worst, why="5 failures in a row"), worker("v")])

    assert status.status == worst
    assert ("worker sick: 5 failures in a row" in status.why) == (worst != "HEALTHY")


def test_what_workers_know_is_put_together() -> None:
    earlier, later = NOW - timedelta(seconds=90), NOW - timedelta(seconds=5)
    sick = WorkerHealth()
    for code in ("http_503", "timeout", "timeout", "timeout", "timeout", "timeout"):
        sick.failure(code)
    told = sick.health()
    status = overall(
        [
            WorkerInfo(id="a", queues=("mail",), seen_at=NOW, health=told),
            worker("b", successes=18, last_success=later),
            worker("c", last_success=earlier),
        ]
    )

    assert status.status == "DEGRADED"
    assert status.consecutive_failures == 6
    assert status.success_rate == 0.75
    assert status.last_success == later
    assert status.patterns == {"timeout": 5, "http_503": 1}


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [worker("other", "sums")],
        [worker("dead", silent=61)],
        [worker("halted", status="CRITICAL", consuming=False)],
        [worker("cut off", status="DEGRADED", consuming=False)],
    ],
    ids=lambda workers: workers[0].id if workers else "none",
)
def test_due_jobs_that_nobody_takes_are_degraded_at_least(workers: list[WorkerInfo]) -> None:
    status = overall(workers, Counts(queue="mail", pending=3, delayed=1))

    assert status.status in ("DEGRADED", "CRITICAL")
    assert "nobody consumes queue 'mail', which has 2 due jobs" in status.why
    assert not status.consuming


@pytest.mark.parametrize(
    "of",
    [Counts(queue="mail", pending=3, delayed=3), Counts(queue="mail", pending=3, paused="paused by hand")],
    ids=["delayed", "paused by hand"],
)
def test_jobs_that_are_not_due_need_nobody(of: Counts) -> None:
    assert overall([], of).status == "HEALTHY"


def test_without_workers_nobody_consumes_even_if_nothing_is_wrong() -> None:
    status = overall([])

    assert (status.status, status.workers, status.consuming) == ("HEALTHY", 0, False)


def test_a_queue_halted_by_a_critical_error_is_critical_even_without_its_worker() -> None:
    halted = Counts(queue="mail", pending=3, halted="CRITICAL: the disk is broken")
    status = overall([worker()], halted)

    assert status.status == "CRITICAL"
    assert status.why == "queue 'mail': CRITICAL: the disk is broken"


def test_a_pause_is_not_critical_whatever_its_reason_begins_with() -> None:
    status = overall([worker()], Counts(queue="mail", pending=3, paused="CRITICAL fix is being deployed"))

    assert (status.status, status.why) == ("HEALTHY", "")


def test_the_gravest_reason_comes_first_and_many_are_cut() -> None:
    sick = [worker(f"w{number}", status="DEGRADED", why="recovery is off") for number in range(50)]

    status = overall(sick, Counts(queue="mail", halted="CRITICAL: broken"))

    assert status.why.startswith("queue 'mail': CRITICAL")
    assert status.why.count(";") == 9


def test_leases_that_ran_out_are_degraded_only_if_nobody_recovers_them() -> None:
    expired = Counts(queue="mail", processing=5, expired=2)
    off = worker("off", recovering=False)

    assert overall([off, worker()], expired).status == "HEALTHY"
    status = overall([off], expired)
    assert (status.status, status.why) == (
        "DEGRADED",
        "2 leases of queue 'mail' ran out and nobody recovers them",
    )


def test_one_queue_is_judged_by_its_own_jobs_and_workers() -> None:
    workers = [worker("m", "mail"), worker("s", "sums", status="DEGRADED", why="recovery is off")]
    counts = [Counts(queue="mail", pending=1), Counts(queue="sums"), Counts(queue="lost", pending=1)]

    assert overall(workers, *counts, queue="mail").status == "HEALTHY"
    assert overall(workers, *counts, queue="mail").workers == 1
    assert overall(workers, *counts, queue="sums").status == "DEGRADED"
    assert "nobody consumes queue 'lost'" in overall(workers, *counts, queue="lost").why


@pytest.mark.anyio
@pytest.mark.accepts("EMB-087")
async def test_the_status_call_reads_what_workers_reported_to_the_store(harness: SQLiteHarness) -> None:
    jobs, vitals = Jobs(harness.store), WorkerHealth()
    for _ in range(5):
        vitals.failure("http_503")
    await enqueued(harness.store, 2)
    assert "nobody consumes queue 'q'" in (await jobs.get_health_status()).why

    await harness.store.heartbeat(WorkerInfo(id="w1", queues=("q",), health=vitals.health()), [])
    status = await jobs.get_health_status("q")
    assert (status.status, status.patterns, status.consuming) == ("DEGRADED", {"http_503": 5}, True)

    vitals.success()
    await harness.store.heartbeat(WorkerInfo(id="w1", queues=("q",), health=vitals.health()), [])
    status = await jobs.get_health_status()
    assert (status.status, status.consecutive_failures) == ("HEALTHY", 0)
    assert status.last_success is not None

    await harness.age(61)
    assert (await jobs.get_health_status()).workers == 0


@pytest.mark.anyio
@pytest.mark.accepts("REC-083")
async def test_after_a_recovery_the_log_names_the_job_and_the_status_call_is_healthy(
    harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs(harness.store)
    job = await one_leased(harness.store)
    await harness.age(61)
    off = WorkerInfo(id="w", queues=("q",), health=Health(recovering=False))
    await harness.store.heartbeat(off, [])
    assert "nobody recovers" in (await jobs.get_health_status()).why

    await Reaper(harness.store).recover()

    assert (await jobs.get_health_status()).status == "HEALTHY"
    [told] = [record for record in caplog.records if record.name == "unstuck.reaper"]
    assert vars(told)["jobIds"] == [job.id]


@pytest.mark.anyio
async def test_health_of_a_queue_that_cannot_be_is_refused(harness: SQLiteHarness) -> None:
    with pytest.raises(ConfigError, match="queue"):
        await Jobs(harness.store).get_health_status("no\nqueue")


@pytest.mark.anyio
async def test_a_queue_that_nobody_has_ever_used_is_not_healthy(harness: SQLiteHarness) -> None:
    jobs = Jobs(harness.store)
    await enqueued(harness.store, queue="mails", delay=60.0)
    await harness.store.heartbeat(WorkerInfo(id="w", queues=("idle",)), [])

    for queue in ("mails", "idle"):
        assert (await jobs.strange(queue), (await jobs.get_health_status(queue)).status) == ("", "HEALTHY")
    status = await jobs.get_health_status("mials")
    assert (status.status, status.why) == (
        "DEGRADED",
        "queue 'mials' is not known, nobody has used it yet (did you mean 'mails'?)",
    )
    assert (await jobs.get_health_status("x")).why.endswith(
        "nobody has used it yet (there are 'idle', 'mails')"
    )
