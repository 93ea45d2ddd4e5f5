"""The values everything else speaks of: what an outcome leads to, and which jobs are dead letters."""

from datetime import UTC, datetime
from typing import Any

from unstuck.protocol.job import Category, Ending, Failure, Job, Lease, NewJob, Ref, Status
from unstuck.protocol.outcome import Outcome, completed, failed, released, retried

LEASE = Lease("q", "1", 7)
WHY = Failure(category=Category.TRANSIENT, code="trouble", message="it did not work")
NEXT = NewJob(queue="q", task="t", id="2")


def ended(ending: Ending | None, status: Status = Status.FAILED) -> Job:
    now = datetime.now(UTC)
    return Job(
        queue="q", id="1", task="t", status=status, fence=7, created_at=now, run_at=now, settled=ending
    )


def outcome(ending: Ending, **facts: Any) -> Outcome:
    return Outcome(lease=LEASE, ending=ending, event="", **facts)


def test_an_outcome_has_just_what_it_was_made_of() -> None:
    made: list[tuple[Outcome, Ending, dict[str, Any]]] = [
        (completed(LEASE), Ending.COMPLETED, {}),
        (completed(LEASE, "done", then=(NEXT,)), Ending.COMPLETED, {"result": "done", "then": (NEXT,)}),
        (retried(LEASE, WHY, 3.0), Ending.RETRIED, {"failure": WHY, "delay": 3.0}),
        (
            retried(LEASE, WHY, 3.0, event="e", crashed=True),
            Ending.RETRIED,
            {"failure": WHY, "delay": 3.0, "event": "e", "crashed": True},
        ),
        (failed(LEASE, WHY), Ending.FAILED, {"failure": WHY}),
        (
            failed(LEASE, WHY, event="e", crashed=True, halt="h"),
            Ending.FAILED,
            {"failure": WHY, "event": "e", "crashed": True, "halt": "h"},
        ),
        (released(LEASE), Ending.RELEASED, {}),
        (
            released(LEASE, 3.0, why="w", pause="p"),
            Ending.RELEASED,
            {"delay": 3.0, "why": "w", "pause": "p"},
        ),
    ]
    for outcome, word, facts in made:
        nothing: dict[str, Any] = {
            "event": str(word), "delay": 0.0, "result": None, "failure": None, "crashed": False, "why": "",
            "pause": "", "halt": "", "then": (),
        }  # fmt: skip
        assert (outcome.lease, outcome.ending) == (LEASE, word)
        assert {name: getattr(outcome, name) for name in nothing} == nothing | facts


def test_an_outcome_decides_the_status_of_its_job_and_a_release_alone_gives_the_attempt_back() -> None:
    assert {word: outcome(word).status for word in Ending} == {
        Ending.COMPLETED: Status.COMPLETED,
        Ending.RETRIED: Status.PENDING,
        Ending.FAILED: Status.FAILED,
        Ending.RELEASED: Status.PENDING,
        Ending.CANCELLED: Status.FAILED,
    }
    assert {word: outcome(word).refund for word in Ending if outcome(word).refund} == {Ending.RELEASED: 1}


def test_an_operator_gets_an_alert_of_a_dead_letter_a_halt_and_a_pause() -> None:
    assert {word: outcome(word).alert for word in Ending if outcome(word).alert} == {
        Ending.FAILED: "dead_letter"
    }
    assert outcome(Ending.FAILED, halt="broken", pause="no quota").alert == "halted"
    assert outcome(Ending.RELEASED, pause="no quota").alert == "paused"


def test_a_dead_letter_is_what_failed_and_nobody_cancelled() -> None:
    jobs = {
        "failed": ended(Ending.FAILED),
        "cancelled": ended(Ending.CANCELLED),
        "by others": ended(None),
        "started over": ended(Ending.CANCELLED, Status.PENDING),
    }

    assert {name: (job.dead, job.cancelled) for name, job in jobs.items()} == {
        "failed": (True, False),
        "cancelled": (False, True),
        "by others": (True, False),
        "started over": (False, False),
    }


def test_a_job_is_addressed_by_queue_and_id_and_held_by_its_fence() -> None:
    job = ended(None)

    assert (job.ref, job.lease, job.lease.ref) == (Ref("q", "1"), LEASE, Ref("q", "1"))
