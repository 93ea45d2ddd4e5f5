"""The retry rule: what an unsuccessful attempt leads to, after how long, and when it is the last."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from unstuck import Permanent, Transient, Unstuck
from unstuck.config.retry import Retry
from unstuck.protocol.classify import failure
from unstuck.protocol.job import JITTER, Category, Ending, Failure, Job, Status
from unstuck.protocol.outcome import Outcome
from unstuck.protocol.retry import backoff, crash_fate, fate
from unstuck.testing import inline

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
SILENCE = Failure(category=Category.TRANSIENT, code="timeout", reason="lease_expired", message="silent")
EMBEDDING = {"max_attempts": 3, "max_crashes": 10}  # crashes have a budget of their own

steps = st.lists(st.floats(0, 1e6), max_size=8).map(tuple)
jitters = st.floats(0, 1)
budgets = st.integers(1, 10)


def leased(**facts: Any) -> Job:
    """A job as the worker has it that just met an error."""
    usual: dict[str, Any] = {
        "status": Status.PROCESSING,
        "fence": 7,
        "attempts": 1,
        "backoff": Retry().backoff,
    }
    return Job(queue="q", id="1", task="t", created_at=LONG_AGO, run_at=LONG_AGO, **usual | facts)


def trouble(category: Category = Category.TRANSIENT) -> Failure:
    return Failure(category=category, code="trouble", message="it did not work")


def test_a_network_timeout_is_retried_after_one_two_and_four_seconds() -> None:
    timeout = failure(TimeoutError("no answer"))

    outcomes = [fate(leased(attempts=attempt, max_attempts=4), timeout) for attempt in (1, 2, 3)]

    assert timeout.category is Category.TRANSIENT
    assert [(outcome.ending, outcome.delay) for outcome in outcomes] == [
        (Ending.RETRIED, 1.0),
        (Ending.RETRIED, 2.0),
        (Ending.RETRIED, 4.0),
    ]


@pytest.mark.accepts("MQ-020")
def test_the_usual_backoff_grows_exponentially() -> None:
    delays = [fate(leased(attempts=attempt, max_attempts=9), trouble()).delay for attempt in (1, 2, 3)]

    assert all(later == 2 * sooner > 0 for sooner, later in pairwise(delays))


@pytest.mark.accepts("MQ-024")
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_a_transient_failure_is_retried_until_the_attempts_are_spent(most: int) -> None:
    words = [fate(leased(attempts=n, max_attempts=most), trouble()).ending for n in range(1, most + 1)]

    assert words == [Ending.RETRIED] * (most - 1) + [Ending.FAILED]


def test_a_failure_at_the_maximum_is_a_dead_letter_that_keeps_its_cause() -> None:
    last = trouble()

    outcome = fate(leased(attempts=3, max_attempts=3), last)

    assert (outcome.status, outcome.event, outcome.failure) == (Status.FAILED, "failed", last)
    assert not outcome.crashed


@pytest.mark.parametrize("category", [Category.PERMANENT, Category.CRITICAL])
def test_what_cannot_pass_fails_at_the_first_attempt(category: Category) -> None:
    outcome = fate(leased(attempts=1, max_attempts=1000), trouble(category), delay=1.0)

    assert outcome.status is Status.FAILED


@pytest.mark.parametrize("wish", [0.0, 7.5, 3600.0])
def test_a_delay_that_was_asked_for_replaces_the_backoff(wish: float) -> None:
    outcome = fate(leased(attempts=1, max_attempts=3), trouble(), delay=wish, jitter=1.0)

    assert (outcome.ending, outcome.delay) == (Ending.RETRIED, wish)


def test_without_steps_nobody_waits() -> None:
    assert backoff((), 1, 1.0) == 0.0


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(-1, 1.0), (0, 1.0), (1, 1.0), (2, 5.0), (3, 5.0), (1000, 5.0)]
)
def test_the_last_step_repeats_and_the_first_is_the_least(attempt: int, seconds: float) -> None:
    assert backoff((1.0, 5.0), attempt) == seconds


def test_a_crash_without_a_budget_of_its_own_is_an_attempt_like_any_other() -> None:
    words = [crash_fate(leased(attempts=n, max_attempts=3), SILENCE).ending for n in (1, 2, 3)]

    assert words == [Ending.RETRIED, Ending.RETRIED, Ending.FAILED]


def test_crashes_count_against_errors_where_they_have_no_budget() -> None:
    outcome = fate(leased(attempts=3, crashes=2, max_attempts=3), trouble())

    assert outcome.ending is Ending.FAILED


def test_a_crash_with_a_budget_of_its_own_is_no_failure() -> None:
    worn = leased(attempts=8, crashes=7, **EMBEDDING)

    crashed, erred = crash_fate(worn, SILENCE), fate(worn, trouble())

    assert (crashed.ending, erred.ending) == (Ending.RETRIED, Ending.RETRIED)
    assert erred.delay == 1.0, "it is the first failure, however many crashes came before"


@pytest.mark.parametrize(
    ("crashes", "word"), [(0, Ending.RETRIED), (8, Ending.RETRIED), (9, Ending.FAILED), (10, Ending.FAILED)]
)
def test_a_job_that_keeps_killing_its_workers_fails_when_that_budget_is_spent(
    crashes: int, word: Ending
) -> None:
    outcome = crash_fate(leased(attempts=crashes + 1, crashes=crashes, **EMBEDDING), SILENCE)

    assert outcome.ending is word


@pytest.mark.parametrize(
    ("attempts", "event", "status"),
    [(1, "reaper:requeued", Status.PENDING), (3, "reaper:failed(timeout)", Status.FAILED)],
)
def test_the_end_of_a_lapsed_lease_is_reported_as_the_reapers(
    attempts: int, event: str, status: Status
) -> None:
    outcome = crash_fate(leased(attempts=attempts, max_attempts=3), SILENCE)

    assert (outcome.event, outcome.status, outcome.crashed) == (event, status, True)
    assert outcome.failure == SILENCE


@pytest.mark.parametrize(("attempts", "event"), [(1, "crash:requeued"), (3, "crash:failed(crashed)")])
def test_a_death_that_was_seen_is_not_shown_as_the_reapers(attempts: int, event: str) -> None:
    seen = Failure(category=Category.TRANSIENT, code="crashed", message="killed by signal 9")

    outcome = crash_fate(leased(attempts=attempts, max_attempts=3), seen, seen=True)

    assert (outcome.event, outcome.failure) == (event, seen)


def test_jitter_lengthens_the_wait_after_an_error_and_after_a_crash() -> None:
    job = leased(attempts=1, max_attempts=3, backoff=(10.0,), lapse_backoff=(30.0,))

    assert fate(job, trouble(), jitter=0.5).delay == pytest.approx(11.0)
    assert crash_fate(job, SILENCE, jitter=0.5).delay == pytest.approx(33.0)


def test_only_what_is_critical_halts_the_queue_and_gives_the_reason_in_at_most_300_characters() -> None:
    fates = {
        category: fate(leased(), Failure(category=category, code="trouble", message="x" * 1000))
        for category in (Category.PERMANENT, Category.CRITICAL)
    }

    assert {category: outcome.halt for category, outcome in fates.items()} == {
        Category.PERMANENT: "",
        Category.CRITICAL: "CRITICAL: " + "x" * 300,
    }


@pytest.mark.accepts("REAP-050", "REAP-100")
def test_the_wait_after_a_lapsed_lease_grows_by_its_own_steps() -> None:
    job = leased(max_attempts=9, lapse_backoff=(30.0, 120.0, 600.0))

    delays = [crash_fate(replace(job, attempts=attempt), SILENCE).delay for attempt in (1, 2, 3, 4)]

    assert delays == [30.0, 120.0, 600.0, 600.0]


def test_with_a_budget_for_crashes_the_wait_grows_with_the_crashes() -> None:
    job = leased(attempts=5, lapse_backoff=(30.0, 120.0, 600.0), **EMBEDDING)

    delays = [crash_fate(replace(job, crashes=crashes), SILENCE).delay for crashes in (0, 1, 2)]

    assert delays == [30.0, 120.0, 600.0]


def test_a_lapsed_job_without_steps_is_free_at_once() -> None:
    outcome = crash_fate(leased(lapse_backoff=(), **EMBEDDING), SILENCE, jitter=1.0)

    assert (outcome.ending, outcome.delay) == (Ending.RETRIED, 0.0)


class NoSuchEntity(Permanent):
    def __init__(self, name: str) -> None:
        self.name = name


class Impatient(Transient):
    def __init__(self, delay: Any) -> None:
        super().__init__("x")
        self.delay = delay


class Hostile(Exception):
    @property
    def response(self) -> None:
        raise RuntimeError("ask me not")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        NoSuchEntity("ann"),
        Hostile("x"),
        Permanent("x", code=5),  # type: ignore[arg-type]
        Permanent("x", code="\ud800"),
        Impatient("5"),
        Impatient(float("nan")),
        Impatient(1e300),
    ],
    ids=["own constructor", "hostile", "code 5", "half a character", "delay '5'", "delay nan", "delay 1e300"],
)
async def test_whatever_a_handler_raises_its_job_and_its_worker_go_on(error: Exception) -> None:
    app = Unstuck("sqlite:///:memory:")

    @app.task
    async def odd() -> None:
        raise error

    @app.task
    async def usual() -> int:
        return 1

    async with inline(app) as jobs:
        met, done = await odd.enqueue(), await usual.enqueue()
        await asyncio.wait_for(jobs.run(), 10)
        met_job, done_job = await met.job(), await done.job()

    assert (done_job.status, done_job.result) == (Status.COMPLETED, 1)
    assert met_job.status is not Status.PROCESSING
    assert met_job.error is not None


@given(steps=steps.filter(bool), attempt=st.integers(-5, 50), jitter=jitters)
def test_jitter_lengthens_a_step_by_at_most_a_fifth(
    steps: tuple[float, ...], attempt: int, jitter: float
) -> None:
    job = leased(attempts=max(1, attempt), max_attempts=1000, backoff=steps)
    plain = backoff(steps, attempt)

    assert plain in steps
    assert plain <= fate(job, trouble(), jitter=jitter).delay <= plain * (1 + JITTER)
    assert JITTER == 0.2


@given(
    most=budgets, most_crashes=st.none() | budgets, fates=st.lists(st.booleans(), min_size=20, max_size=20)
)
def test_a_job_gets_its_budget_and_no_more(most: int, most_crashes: int | None, fates: list[bool]) -> None:
    job = leased(attempts=0, max_attempts=most, max_crashes=most_crashes)

    for crashes in fates:
        job = replace(job, attempts=job.attempts + 1)
        outcome = crash_fate(job, SILENCE) if crashes else fate(job, trouble())
        job = replace(job, crashes=job.crashes + outcome.crashed, status=outcome.status)
        if job.status is Status.FAILED:
            break

    errors = job.attempts - job.crashes
    assert job.status is Status.FAILED, "two budgets of ten are spent after nineteen leases"
    if most_crashes is None:
        assert job.attempts == most
    else:
        assert (errors == most, job.crashes == most_crashes) in [(True, False), (False, True)]
        assert (errors <= most, job.crashes <= most_crashes) == (True, True)


@given(
    job=st.builds(
        leased,
        fence=st.integers(0, 2**62),
        attempts=st.integers(0, 20),
        crashes=st.integers(0, 20),
        max_attempts=budgets,
        max_crashes=st.none() | budgets,
        backoff=steps,
        lapse_backoff=steps,
    ),
    category=st.sampled_from(Category),
    delay=st.none() | st.floats(0, 3600),
    jitter=jitters,
)
def test_an_outcome_ends_the_very_lease_it_was_asked_about(
    job: Job, category: Category, delay: float | None, jitter: float
) -> None:
    why = trouble(category)
    before = replace(job)

    outcomes: list[Outcome] = [
        fate(job, why, delay=delay, jitter=jitter),
        crash_fate(job, why, jitter=jitter),
    ]

    assert [(outcome.lease, outcome.failure) for outcome in outcomes] == [(job.lease, why)] * 2
    assert [outcome.crashed for outcome in outcomes] == [False, True]
    assert {outcome.ending for outcome in outcomes} <= {Ending.RETRIED, Ending.FAILED}
    assert all(outcome.delay >= 0 for outcome in outcomes)
    assert job == before
