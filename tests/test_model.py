"""The values everything else speaks of: what an outcome leads to, and which jobs are dead letters."""

from datetime import UTC, datetime
from typing import Any

from unstuck.model import (
    Category,
    Failure,
    Job,
    Lease,
    NewJob,
    Outcome,
    Ref,
    Status,
    Word,
    completed,
    failed,
    released,
    retried,
)

LEASE = Lease("q", "1", 7)
WHY = Failure(category=Category.TRANSIENT, code="trouble", message="it did not work")
NEXT = NewJob(queue="q", task="t", id="2")


def ended(word: Word | None, status: Status = Status.FAILED) -> Job:
    now = datetime.now(UTC)
    return Job(queue="q", id="1", task="t", status=status, fence=7, created_at=now, run_at=now, settled=word)


def outcome(word: Word, **facts: Any) -> Outcome:
    return Outcome(lease=LEASE, word=word, event="", **facts)


def test_an_outcome_says_just_what_it_was_made_of() -> None:
    made: list[tuple[Outcome, Word, dict[str, Any]]] = [
        (completed(LEASE), Word.COMPLETED, {}),
        (completed(LEASE, "done", then=(NEXT,)), Word.COMPLETED, {"result": "done", "then": (NEXT,)}),
        (retried(LEASE, WHY, 3.0), Word.RETRIED, {"failure": WHY, "delay": 3.0}),
        (
            retried(LEASE, WHY, 3.0, event="e", crashed=True),
            Word.RETRIED,
            {"failure": WHY, "delay": 3.0, "event": "e", "crashed": True},
        ),
        (failed(LEASE, WHY), Word.FAILED, {"failure": WHY}),
        (
            failed(LEASE, WHY, event="e", crashed=True, pause="p"),
            Word.FAILED,
            {"failure": WHY, "event": "e", "crashed": True, "pause": "p"},
        ),
        (released(LEASE), Word.RELEASED, {}),
        (
            released(LEASE, 3.0, why="w", pause="p"),
            Word.RELEASED,
            {"delay": 3.0, "why": "w", "pause": "p"},
        ),
    ]
    for outcome, word, facts in made:
        nothing: dict[str, Any] = {
            "event": str(word), "delay": 0.0, "result": None, "failure": None, "crashed": False, "why": "",
            "pause": "", "then": (),
        }  # fmt: skip
        assert (outcome.lease, outcome.word) == (LEASE, word)
        assert {name: getattr(outcome, name) for name in nothing} == nothing | facts


def test_an_outcome_decides_the_status_of_its_job_and_a_release_alone_gives_the_attempt_back() -> None:
    assert {word: outcome(word).status for word in Word} == {
        Word.COMPLETED: Status.COMPLETED,
        Word.RETRIED: Status.PENDING,
        Word.FAILED: Status.FAILED,
        Word.RELEASED: Status.PENDING,
        Word.CANCELLED: Status.FAILED,
    }
    assert {word: outcome(word).refund for word in Word if outcome(word).refund} == {Word.RELEASED: 1}


def test_an_operator_hears_of_a_dead_letter_a_halt_and_a_pause() -> None:
    assert {word: outcome(word).alert for word in Word if outcome(word).alert} == {Word.FAILED: "dead_letter"}
    assert outcome(Word.FAILED, pause="broken").alert == "halted"
    assert outcome(Word.RELEASED, pause="no quota").alert == "paused"


def test_a_dead_letter_is_what_failed_and_nobody_cancelled() -> None:
    jobs = {
        "failed": ended(Word.FAILED),
        "cancelled": ended(Word.CANCELLED),
        "by others": ended(None),
        "started over": ended(Word.CANCELLED, Status.PENDING),
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
