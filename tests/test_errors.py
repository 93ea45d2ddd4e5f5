"""The errors a person can meet: what they say, and what they carry for whoever catches them."""

import pytest

from unstuck.errors import (
    Critical,
    JobError,
    JobFailed,
    JobPending,
    PayloadError,
    Permanent,
    QuotaExhausted,
    RateLimited,
    Snooze,
    Transient,
    UnstuckError,
)
from unstuck.model import Category, Failure


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
def test_a_verdict_carries_what_the_handler_said(kind: type[JobError], category: Category) -> None:
    silent, said = kind(), kind("no such entity", code="missing", delay=5.0)

    assert (str(silent), silent.category, silent.code, silent.delay) == ("", category, "", None)
    assert (str(said), said.category, said.code, said.delay) == ("no such entity", category, "missing", 5.0)


def test_a_verdict_whose_constructor_says_nothing_has_neither_code_nor_delay() -> None:
    class Own(Permanent):
        def __init__(self) -> None:
            pass

    assert (Own().code, Own().delay) == ("", None)


def test_a_failed_job_is_told_with_its_cause() -> None:
    why = Failure(category=Category.PERMANENT, code="missing", message="no such entity")
    error = JobFailed("17", why)

    assert str(error) == "job 17 failed: missing: no such entity"
    assert (error.job, error.failure) == ("17", why)


def test_a_payload_that_is_too_large_tells_its_size() -> None:
    assert (str(PayloadError("too large", size=5)), PayloadError("too large", size=5).size) == (
        "too large",
        5,
    )
    assert PayloadError("no").size is None


def test_a_snooze_is_no_error_and_tells_for_how_long() -> None:
    assert (str(Snooze(60)), Snooze(60).seconds) == ("not for another 60 s", 60)
    assert not isinstance(Snooze(60), UnstuckError)


def test_waiting_too_long_for_a_result_is_a_timeout() -> None:
    assert issubclass(JobPending, TimeoutError)
