"""The errors a person can meet: what they say, and what they carry for whoever catches them."""

import math
from datetime import timedelta
from typing import Any

import pytest

from unstuck.protocol.errors import (
    ConfigError,
    Critical,
    JobError,
    JobFailed,
    JobPending,
    PartlySettled,
    PayloadError,
    Permanent,
    QuotaExhausted,
    RateLimited,
    Snooze,
    Transient,
    UnstuckError,
)
from unstuck.protocol.job import Category, Failure
from unstuck.protocol.outcome import Settled


@pytest.mark.parametrize(
    ("kind", "category"),
    [
        (JobError, Category.TRANSIENT),
        (Transient, Category.TRANSIENT),
        (RateLimited, Category.TRANSIENT),
        (QuotaExhausted, Category.TRANSIENT),
        (Permanent, Category.PERMANENT),
        (Critical, Category.CRITICAL),
    ],
)
def test_a_verdict_carries_what_the_handler_gave_it(kind: type[JobError], category: Category) -> None:
    silent, said = kind(), kind("no such entity", code="missing", delay=5.0)

    assert (str(silent), silent.category, silent.code, silent.delay) == ("", category, "", None)
    assert (str(said), said.category, said.code, said.delay) == ("no such entity", category, "missing", 5.0)


def test_a_verdict_whose_constructor_sets_nothing_has_neither_code_nor_delay() -> None:
    class Own(Permanent):
        def __init__(self) -> None:
            pass

    assert (Own().code, Own().delay) == ("", None)


def test_a_failed_job_is_reported_with_its_cause() -> None:
    why = Failure(category=Category.PERMANENT, code="missing", message="no such entity")
    error = JobFailed("17", why)

    assert str(error) == "job 17 failed: missing: no such entity"
    assert (error.job, error.failure) == ("17", why)


def test_a_batch_that_was_written_in_part_carries_the_answers_there_are() -> None:
    error = PartlySettled("table asr_jobs is locked", [Settled.APPLIED, None])

    assert str(error) == "table asr_jobs is locked"
    assert error.answers == [Settled.APPLIED, None]


def test_a_payload_that_is_too_large_reports_its_size() -> None:
    assert (str(PayloadError("too large", size=5)), PayloadError("too large", size=5).size) == (
        "too large",
        5,
    )
    assert PayloadError("no").size is None


def test_a_snooze_is_no_error_and_returns_for_how_long() -> None:
    assert (str(Snooze(60)), Snooze(60).seconds) == ("not for another 60 s", 60)
    assert not isinstance(Snooze(60), UnstuckError)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (366 * 86400, 31_622_400.0),
        (0.1, 0.1),
        (0.2, 0.2),
        (0, 0.1),
        (-(10**400), 0.1),
        (timedelta(hours=1), 3600.0),
    ],
)
def test_a_snooze_lasts_from_a_tenth_of_a_second_to_a_year(given: Any, seconds: float) -> None:
    assert Snooze(given).seconds == seconds


@pytest.mark.parametrize("given", [31_622_401, math.nan, "60", True, None, [60]])
def test_what_is_no_length_of_time_is_reported_with_the_bound(given: Any) -> None:
    bound = "it must be a number of seconds, 31622400 (366 days) at most, or a timedelta"

    with pytest.raises(ConfigError) as caught:
        Snooze(given)
    assert str(caught.value) == f"Snooze is {given!r}: {bound}"
    if given is not None:
        with pytest.raises(ConfigError) as caught:
            Transient("later", delay=given)
        assert str(caught.value) == f"delay of Transient is {given!r}: {bound}"


def test_a_delay_is_kept_as_a_number_or_not_at_all() -> None:
    errors = [Transient("x"), Transient("x", delay=timedelta(minutes=1)), RateLimited(delay=-5)]

    assert [error.delay for error in errors] == [None, 60.0, -5.0]


def test_waiting_too_long_for_a_result_is_a_timeout() -> None:
    assert issubclass(JobPending, TimeoutError)
