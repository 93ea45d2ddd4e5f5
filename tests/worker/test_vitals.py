"""WorkerHealth: what a worker says of itself."""

import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest

from unstuck.operations.health import WorkerHealth
from unstuck.protocol.fleet import Health


class Watch:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(times: int, code: str = "timeout") -> WorkerHealth:
    vitals = WorkerHealth("w1")
    for _ in range(times):
        vitals.failure(code)
    return vitals


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == level]


def test_the_fifth_failure_in_a_row_makes_a_worker_degraded_and_not_the_fourth() -> None:
    vitals = failing(4)
    assert vitals.health().status == "HEALTHY"

    vitals.failure("timeout")

    health = vitals.health()
    assert (health.status, health.why, health.consecutive_failures) == ("DEGRADED", "5 failures in a row", 5)


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


def test_one_success_after_three_failures_resets_the_count_and_is_reported(
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
    vitals = WorkerHealth()
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
    assert WorkerHealth().health() == Health()


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
    vitals = WorkerHealth()
    vitals.success()

    last = vitals.health().last_success

    assert last is not None
    assert last.utcoffset() == timedelta(0)
    assert before - timedelta(milliseconds=1) <= last <= datetime.now(UTC)


def test_a_halt_is_critical_and_no_success_lifts_it(caplog: pytest.LogCaptureFixture) -> None:
    vitals = WorkerHealth()

    vitals.halt("the database is corrupt")
    vitals.halt("again")
    vitals.success()

    health = vitals.health()
    assert (health.status, health.why) == ("CRITICAL", "halted: the database is corrupt")
    assert not health.consuming
    assert len(said(caplog, logging.CRITICAL)) == 1


def test_recovery_that_is_off_is_degraded() -> None:
    vitals = WorkerHealth()
    vitals.recovery(False)

    health = vitals.health()

    assert (health.status, health.why, health.recovering) == ("DEGRADED", "recovery is off", False)
    vitals.recovery(True)
    assert vitals.health().status == "HEALTHY"


def test_a_worker_whose_store_has_not_answered_for_30_seconds_is_degraded_until_it_does() -> None:
    watch = Watch()
    vitals = WorkerHealth(clock=watch)
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
    vitals = WorkerHealth(clock=watch)
    watch.now = 600.0

    assert vitals.health(full=True).status == "HEALTHY"
    assert vitals.health().status == "HEALTHY"  # room again, and it has just begun to ask


def test_health_can_be_asked_for_while_other_threads_report() -> None:
    vitals, done = WorkerHealth(), threading.Event()

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


def test_what_a_worker_did_is_logged_with_its_id_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unstuck.health")
    watch = Watch()
    vitals = WorkerHealth("w1", clock=watch)
    vitals.success()
    vitals.success()
    vitals.failure("timeout")
    watch.now = 59.0
    vitals.report()
    assert not caplog.records

    watch.now = 60.0
    vitals.report()
    vitals.report()
    watch.now = 120.0
    vitals.report()  # nothing was done since

    [report] = caplog.records
    told = vars(report)
    assert (told["workerId"], told["succeeded"], told["failed"], told["seconds"]) == ("w1", 2, 1, 60.0)
