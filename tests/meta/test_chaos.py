"""The fault driver's checks notice what they are there for: each is shown a history that breaks its rule."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.ledger import Ledger

from chaos.faults import Harm, Span
from chaos.history import Check, History
from chaos.terms import RATE
from unstuck import Category, Failure, Job, Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = f"worker-host-{os.getpid()}-0123abcd"


def job(id_: str, **facts: Any) -> Job:
    common: dict[str, Any] = {
        "queue": "mixed", "task": "on_loop", "payload": {}, "status": Status.COMPLETED, "fence": 1, "attempts": 1,
        "created_at": NOW, "run_at": NOW,
    }  # fmt: skip
    return Job(id=id_, **(common | facts))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """One job that was acknowledged, run and ended."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.note("acknowledged", "a", 0, task="on_loop")
    ran(ledger, "a", 1)
    return ledger


def ran(ledger: Ledger, id_: str, fence: int, *, to_its_end: bool = True) -> None:
    ledger.note("begin", id_, fence, owner=OWNER)
    if to_its_end:
        ledger.end(id_, fence)


def broken(history: History) -> list[str]:
    return [check.rule for check in history.checks() if check.broken]


def one(history: History, of: Callable[[History], Check]) -> None:
    """This rule is broken, and no other."""
    assert broken(history) == [of(history).rule]


def test_a_good_history_breaks_no_rule(ledger: Ledger) -> None:
    assert broken(History(ledger, [job("a")], [], set())) == []


def test_a_job_that_is_gone_is_lost(ledger: Ledger) -> None:
    one(History(ledger, [], [], set()), History.nothing_lost)


def test_a_job_that_still_waits_is_stuck(ledger: Ledger) -> None:
    one(History(ledger, [job("a"), job("b", status=Status.PENDING)], [], set()), History.nothing_stuck)


def test_a_job_that_failed_has_not_ended_as_its_task_promises(ledger: Ledger) -> None:
    failure = Failure(category=Category.PERMANENT, code="timeout", message="late")
    failed = job("a", status=Status.FAILED, error=failure)
    one(History(ledger, [failed], [], set()), History.ended_as_expected)


def test_a_cancelled_job_may_have_failed_only_if_somebody_cancelled_it(ledger: Ledger) -> None:
    failure = Failure(category=Category.PERMANENT, code="cancelled", message="")
    failed = job("a", status=Status.FAILED, error=failure)
    one(History(ledger, [failed], [], set()), History.ended_as_expected)
    assert broken(History(ledger, [failed], [], {"a"})) == []


def test_an_outcome_that_no_handler_came_to_is_not_its_holders(ledger: Ledger) -> None:
    ran(ledger, "b", 1, to_its_end=False)
    one(History(ledger, [job("a"), job("b")], [], set()), History.outcome_of_its_holder)


def test_a_fence_that_does_not_grow_is_seen(ledger: Ledger) -> None:
    ran(ledger, "a", 1)
    one(History(ledger, [job("a")], [], set()), History.fences_grow)


def test_a_job_that_ran_twice_although_nobody_was_harmed_is_doubled(ledger: Ledger) -> None:
    ran(ledger, "a", 2)
    twice = job("a", fence=2)
    one(History(ledger, [twice], [], set()), History.nothing_doubled)
    assert broken(History(ledger, [twice], [], {"a"})) == []


def test_it_is_not_doubled_if_its_worker_was_harmed_before_it_ran_again(ledger: Ledger) -> None:
    ran(ledger, "a", 2)
    twice = job("a", fence=2)
    [first, second] = ledger.runs()
    for at in (
        first.begin,
        second.begin - 1,
    ):  # also behind its end: the outcome may not have been stored yet
        harm = Harm("frozen", frozenset({os.getpid()}), at, at)
        assert broken(History(ledger, [twice], [harm], set())) == []
    late = Harm("frozen", frozenset({os.getpid()}), second.begin + 1, second.begin + 1)
    one(History(ledger, [twice], [late], set()), History.nothing_doubled)


def test_what_a_poison_job_took_with_it_is_not_doubled(ledger: Ledger) -> None:
    ledger.note("begin", "p", 1, owner=OWNER, task="poison")
    ran(ledger, "a", 2)
    failure = Failure(category=Category.PERMANENT, code="crashed", message="")
    dead = job("p", queue="poison", task="poison", status=Status.FAILED, error=failure)
    assert broken(History(ledger, [job("a", fence=2), dead], [], set())) == []


def test_one_start_too_many_breaks_the_rate(ledger: Ledger) -> None:
    names = [f"r{n}" for n in range(RATE + 1)]
    for name in names:
        ran(ledger, name, 1)
    rated = [job(name, queue="rated") for name in names]
    one(History(ledger, [job("a"), *rated], [], set()), History.rate_held)
    assert broken(History(ledger, [job("a"), *rated[1:]], [], set())) == []


@pytest.mark.parametrize("followers", [0, 2])
def test_a_first_stage_without_exactly_one_second_is_seen(ledger: Ledger, followers: int) -> None:
    ran(ledger, "f", 1)
    found = [job("a"), job("f", task="first_stage")]
    for n in range(followers):
        ran(ledger, f"s{n}", 1)
        found.append(job(f"s{n}", task="second_stage", payload={"of": "f"}))
    one(History(ledger, found, [], set()), History.follow_ups_once)


def test_a_forked_producer_that_failed_is_seen(ledger: Ledger) -> None:
    ledger.note("forked", "", 0, status=9)
    one(History(ledger, [job("a")], [], set()), History.forked_children)


def test_a_recovery_is_counted_from_the_death_to_the_next_start(ledger: Ledger) -> None:
    ran(ledger, "b", 1, to_its_end=False)
    [begun] = [run for run in ledger.runs() if run.job == "b"]
    ran(ledger, "b", 2)
    harm = Harm("killed", frozenset({os.getpid()}), begun.begin + 1, begun.begin + 1)
    history = History(ledger, [job("a"), job("b", fence=2)], [harm], set())
    kill = Span("worker killed", begun.begin, begun.begin + 2)
    reset = Span("all connections reset", begun.begin + 3, begun.begin + 4)
    [alone], [disturbed] = history.recoveries([kill]), history.recoveries([kill, reset])
    assert alone.seconds > 0
    assert (alone.beside, disturbed.beside) == ([], ["all connections reset"])
