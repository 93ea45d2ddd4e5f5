"""The verdict on a job whose worker fell silent or died: every word of it, because it is all that is left."""

from datetime import UTC, datetime
from typing import Any

import pytest

from unstuck.protocol.job import Category, Ending, Failure, Job, Status
from unstuck.protocol.retry import judge

HEARD = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ENDED = datetime(2026, 5, 4, 3, 2, 21, tzinfo=UTC)


def held(**facts: Any) -> Job:
    usual: dict[str, Any] = {
        "owner": "w1",
        "heartbeat_at": HEARD,
        "lease_until": ENDED,
        "stage": "asr",
        "attempts": 2,
        "max_attempts": 3,
        "crashes": 1,
        "lapse_backoff": (30.0,),
    }
    now = datetime.now(UTC)
    return Job(
        queue="q",
        id="1",
        task="t",
        status=Status.PROCESSING,
        fence=7,
        created_at=now,
        run_at=now,
        **usual | facts,
    )


def test_the_failure_of_a_silent_worker_reports_all_that_is_known_of_it() -> None:
    outcome = judge(held())

    assert (outcome.ending, outcome.event, outcome.delay) == (Ending.RETRIED, "reaper:requeued", 30.0)
    assert outcome.failure == Failure(
        category=Category.TRANSIENT,
        code="timeout",
        reason="lease_expired",
        message="worker w1 sent its last heartbeat at 2026-05-04 03:02:01 UTC, and its lease ran out",
        attempt=2,
        worker="w1",
        details={
            "owner": "w1",
            "lease_until": "2026-05-04T03:02:21+00:00",
            "heartbeat_at": "2026-05-04T03:02:01+00:00",
            "stage": "asr",
            "attempts": 2,
            "crashes": 2,
        },
    )


def test_the_failure_of_a_dead_worker_names_the_cause() -> None:
    outcome = judge(held(attempts=3), "w1", "killed by SIGKILL")

    assert (outcome.ending, outcome.event) == (Ending.FAILED, "crash:failed(crashed)")
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.reason) == ("crashed", "killed by SIGKILL")
    assert outcome.failure.message == "worker w1 died: killed by SIGKILL"
    assert (outcome.failure.attempt, outcome.failure.details["crashes"]) == (3, 2)


def test_a_holder_of_whom_nothing_is_known_is_shown_as_such() -> None:
    failure = judge(held(owner=None, heartbeat_at=None, lease_until=None, stage=None)).failure

    assert failure is not None
    assert failure.message == "a worker without a name never sent a heartbeat, and its lease ran out"
    assert failure.worker == ""
    assert failure.details == {
        "owner": None,
        "lease_until": None,
        "heartbeat_at": None,
        "stage": None,
        "attempts": 2,
        "crashes": 2,
    }


def test_a_death_without_a_cause_is_reported_without_one() -> None:
    failure = judge(held(), "w1").failure

    assert failure is not None
    assert (failure.reason, failure.message) == ("", "worker w1 died: ")


@pytest.mark.parametrize("of", [None, "w1"])
def test_the_wait_after_a_crash_is_lengthened_by_the_given_jitter(of: str | None) -> None:
    assert judge(held(), of, jitter=1.0).delay == pytest.approx(36.0)
