"""Health: what a worker says of itself, and what workers and queues add up to."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from unstuck import ConfigError, Jobs, Reaper
from unstuck.health import HealthStatus, Vitals, health_status
from unstuck.model import Health, Worker
from unstuck.store import Counts
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, one_leased

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


class Watch:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(times: int, code: str = "timeout") -> Vitals:
    vitals = Vitals("w1")
    for _ in range(times):
        vitals.failure(code)
    return vitals


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == level]


@pytest.mark.accepts("EMB-080", "EMB-082")
def test_the_fifth_failure_in_a_row_makes_a_worker_degraded_and_not_the_fourth() -> None:
    vitals = failing(4)
    assert vitals.health().status == "HEALTHY"

    vitals.failure("timeout")

    health = vitals.health()
    assert (health.status, health.why, health.consecutive_failures) == ("DEGRADED", "5 failures in a row", 5)


@pytest.mark.accepts("EMB-081", "EMB-083")
def test_the_fifth_failure_in_a_row_is_warned_of_once_with_the_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vitals = failing(4)
    assert not said(caplog, logging.WARNING)

    vitals.failure("timeout")
    vitals.failure("timeout")

    [warning] = said(caplog, logging.WARNING)
    assert (warning.name, vars(warning)["consecutiveFailures"]) == ("unstuck.health", 5)
    assert vars(warning)["workerId"] == "w1"
    assert "5 failures in a row" in warning.getMessage()


@pytest.mark.accepts("EMB-084", "EMB-085", "EMB-086")
def test_one_success_after_three_failures_resets_the_count_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "unstuck.health")
    vitals = failing(3)

    vitals.success()

    health = vitals.health()
    assert (health.status, health.consecutive_failures) == ("HEALTHY", 0)
    assert (health.successes, health.failures) == (1, 3)
    [recovery] = said(caplog, logging.INFO)
    assert "recovered" in recovery.getMessage()
    assert vars(recovery)["consecutiveFailures"] == 3


def test_a_degraded_worker_is_healthy_again_after_one_success(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unstuck.health")
    vitals = failing(7)

    vitals.success()

    assert vitals.health().status == "HEALTHY"
    assert "after 7 failures" in said(caplog, logging.INFO)[0].getMessage()


def test_everyday_failures_make_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unstuck.health")
    vitals = Vitals()
    for _ in range(50):
        vitals.failure("timeout")
        vitals.success()

    assert not caplog.records
    assert vitals.health().status == "HEALTHY"


def test_one_failure_of_one_is_not_degraded() -> None:
    health = failing(1).health()

    assert (health.status, health.successes, health.failures) == ("HEALTHY", 0, 1)
    assert health.patterns == {}


def test_a_worker_that_has_done_nothing_yet_is_healthy() -> None:
    assert Vitals().health() == Health()


def test_only_the_last_hundred_outcomes_count() -> None:
    vitals = failing(4)
    for _ in range(98):
        vitals.success()

    health = vitals.health()

    assert (health.successes, health.failures) == (98, 2)


def test_patterns_count_the_latest_failures_by_code_while_not_healthy() -> None:
    vitals = failing(2, "http_503")
    for _ in range(3):
        vitals.failure("timeout")

    assert vitals.health().patterns == {"timeout": 3, "http_503": 2}

    vitals.success()
    assert vitals.health().patterns == {}


def test_the_last_success_is_a_utc_time() -> None:
    before = datetime.now(UTC)
    vitals = Vitals()
    vitals.success()

    last = vitals.health().last_success

    assert last is not None
    assert last.utcoffset() == timedelta(0)
    assert before - timedelta(milliseconds=1) <= last <= datetime.now(UTC)


def test_a_halt_is_critical_and_no_success_lifts_it(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Vitals()

    vitals.halt("the database is corrupt")
    vitals.halt("again")
    vitals.success()

    health = vitals.health()
    assert (health.status, health.why) == ("CRITICAL", "halted: the database is corrupt")
    assert not health.consuming
    assert len(said(caplog, logging.CRITICAL)) == 1


def test_recovery_that_is_off_is_degraded() -> None:
    vitals = Vitals()
    vitals.recovery(False)

    health = vitals.health()

    assert (health.status, health.why, health.recovering) == ("DEGRADED", "recovery is off", False)
    vitals.recovery(True)
    assert vitals.health().status == "HEALTHY"


def test_a_worker_whose_store_has_not_answered_for_30_seconds_is_degraded_until_it_does() -> None:
    watch = Watch()
    vitals = Vitals(clock=watch)
    watch.now = 29.9
    assert vitals.health().consuming

    watch.now = 30.0
    health = vitals.health()
    assert (health.status, health.consuming) == ("DEGRADED", False)
    assert "for 30 s" in health.why

    vitals.consuming()
    assert vitals.health().status == "HEALTHY"


def test_a_worker_that_is_full_need_not_ask_for_work() -> None:
    watch = Watch()
    vitals = Vitals(clock=watch)
    watch.now = 600.0

    assert vitals.health(full=True).status == "HEALTHY"
    assert vitals.health().status == "HEALTHY"  # room again, and it has just begun to ask


def test_health_can_be_asked_for_while_other_threads_tell() -> None:
    vitals, done = Vitals(), threading.Event()

    def tell() -> None:
        for _ in range(5000):
            vitals.failure("timeout")
            vitals.success()
        done.set()

    thread = threading.Thread(target=tell)
    thread.start()
    while not done.is_set():
        health = vitals.health()
        assert health.consecutive_failures in (0, 1)
    thread.join()
    assert (vitals.health().successes, vitals.health().failures) == (50, 50)


def worker(id: str = "w", *queues: str, silent: float = 1.0, **health: Any) -> Worker:
    seen = NOW - timedelta(seconds=silent)
    return Worker(id=id, queues=queues or ("mail",), seen_at=seen, health=Health(**health))


def overall(workers: list[Worker], *counts: Counts, queue: str | None = None) -> HealthStatus:
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


@pytest.mark.accepts("EMB-088", "EMB-089")
def test_what_workers_know_is_put_together() -> None:
    earlier, later = NOW - timedelta(seconds=90), NOW - timedelta(seconds=5)
    sick = Vitals()
    for code in ("http_503", "timeout", "timeout", "timeout", "timeout", "timeout"):
        sick.failure(code)
    told = sick.health()
    status = overall(
        [
            Worker(id="a", queues=("mail",), seen_at=NOW, health=told),
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
def test_due_jobs_that_nobody_takes_are_degraded_at_least(workers: list[Worker]) -> None:
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
    status = overall([worker()], Counts(queue="mail", paused="CRITICAL: the disk is broken"))

    assert status.status == "CRITICAL"
    assert status.why == "queue 'mail': CRITICAL: the disk is broken"


def test_the_gravest_reason_comes_first_and_many_are_cut() -> None:
    sick = [worker(f"w{number}", status="DEGRADED", why="recovery is off") for number in range(50)]

    status = overall(sick, Counts(queue="mail", paused="CRITICAL: broken"))

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
@pytest.mark.accepts("EMB-087", "EMB-088")
async def test_the_status_call_reads_what_workers_told_the_store(harness: SQLiteHarness) -> None:
    jobs, vitals = Jobs(harness.store), failing(5, "http_503")
    await enqueued(harness.store, 2)
    assert "nobody consumes queue 'q'" in (await jobs.get_health_status()).why

    await harness.store.heartbeat(Worker(id="w1", queues=("q",), health=vitals.health()), [])
    status = await jobs.get_health_status("q")
    assert (status.status, status.patterns, status.consuming) == ("DEGRADED", {"http_503": 5}, True)

    vitals.success()
    await harness.store.heartbeat(Worker(id="w1", queues=("q",), health=vitals.health()), [])
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
    off = Worker(id="w", queues=("q",), health=Health(recovering=False))
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
