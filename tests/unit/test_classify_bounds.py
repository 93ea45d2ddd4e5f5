"""classify() on errors of our own making: every bound of a status, a wish for time and a code."""

import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from unstuck import Critical, Permanent, Transient
from unstuck.protocol.classify import Class, Refusal, classify, failure, register
from unstuck.protocol.job import Category

TRANSIENT, PERMANENT = Category.TRANSIENT, Category.PERMANENT


class Answered(Exception):
    """A request that was answered, as httpx and its like tell it."""

    def __init__(self, status: Any, headers: dict[str, str] | None = None, code: str | None = None) -> None:
        self.response = SimpleNamespace(status_code=status)
        self.code = code
        if headers is not None:
            self.response.headers = headers


def wish(value: str, **headers: str) -> dict[str, str]:
    return {"retry-after": value} | headers


@pytest.mark.parametrize(
    ("status", "category", "code"),
    [
        (100, PERMANENT, "http_100"),
        (404, PERMANENT, "http_404"),
        (408, TRANSIENT, "http_408"),
        (409, TRANSIENT, "http_409"),
        (425, TRANSIENT, "http_425"),
        (499, PERMANENT, "http_499"),
        (500, TRANSIENT, "http_500"),
        (599, TRANSIENT, "http_599"),
        (99, TRANSIENT, "Answered"),
        (600, TRANSIENT, "Answered"),
        (True, TRANSIENT, "Answered"),
        ("404", TRANSIENT, "Answered"),
    ],
)
def test_a_status_is_a_whole_number_from_100_to_599_and_names_its_code(
    status: Any, category: Category, code: str
) -> None:
    assert classify(Answered(status)) == Class(category, code)


def test_a_status_is_found_on_the_error_itself_as_well() -> None:
    error = Exception("no response")
    error.status = 404  # type: ignore[attr-defined]

    assert classify(error) == Class(PERMANENT, "http_404")


@pytest.mark.parametrize(("status", "delay"), [(503, 7.0), (409, 7.0), (404, None)])
def test_a_wish_for_time_counts_where_another_attempt_makes_sense(status: int, delay: float | None) -> None:
    assert classify(Answered(status, wish("7"))).delay == delay


def test_a_refusal_is_of_the_rate_unless_it_names_the_quota() -> None:
    rate, quota = Answered(429, wish("7")), Answered(429, wish("7"), "insufficient_quota")

    assert classify(rate) == Class(TRANSIENT, "http_429", 7.0, Refusal.RATE)
    assert classify(quota) == Class(TRANSIENT, "insufficient_quota", None, Refusal.QUOTA)


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({}, None),
        (wish(""), None),
        (wish("0.5"), 0.5),
        (wish("-5"), 0.0),
        (wish("3600"), 3600.0),
        (wish("3601"), 3600.0),
        (wish("inf"), 3600.0),
        (wish("nan"), None),
        (wish("soon"), None),
        (wish("Wed, 21 Oct 2026 07:28:30 GMT", date="Wed, 21 Oct 2026 07:28:00 GMT"), 30.0),
        (wish("Wed, 21 Oct 2026 07:28:30 GMT", date="Wed, 21 Oct 2026 07:29:00 GMT"), 0.0),
        (wish("Wed, 21 Oct 2026 07:28:30 GMT", date="yesterday"), None),
        (wish("Wed, 21 Oct 2020 07:28:30 GMT"), 0.0),
    ],
    ids=str,
)
def test_a_wish_for_time_is_in_seconds_or_a_date_by_the_clock_of_who_asks(
    headers: dict[str, str], delay: float | None
) -> None:
    assert classify(Answered(503, headers)) == Class(TRANSIENT, "http_503", delay)


def test_a_date_without_the_time_it_was_sent_is_judged_by_our_clock() -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=1000), usegmt=True)
    delay = classify(Answered(503, wish(then))).delay

    assert delay is not None
    assert 900 < delay <= 1000


@pytest.mark.parametrize(
    "delay",
    [float("nan"), float("inf"), -5.0, 1e300, 10**400, "5", timedelta(seconds=5)],
    ids=lambda it: f"{it!r:.9}",
)
def test_a_verdict_with_a_senseless_delay_leaves_one_that_a_store_can_keep(delay: Any) -> None:
    error = Transient("x")
    error.delay = delay  # its constructor would refuse most of these

    found = classify(error)

    assert found.category is TRANSIENT
    assert found.delay is None or 0 <= found.delay <= 10 * 366 * 86400


def test_what_a_rule_leaves_open_is_filled_in() -> None:
    class Own(Exception): ...

    class Other(Exception): ...

    register(Own, lambda error: PERMANENT)
    register(Other, lambda error: Class(PERMANENT, delay=5.0))

    assert classify(Own()) == Class(PERMANENT, "Own")
    assert classify(Other()) == Class(PERMANENT, "Other", 5.0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (msgspec.ValidationError("no"), "invalid_payload"),
        (TimeoutError(), "timeout"),
        (KeyError("x"), "KeyError"),
    ],
    ids=["validation", "timeout", "any other"],
)
def test_the_usual_words_for_an_exception(error: Exception, code: str) -> None:
    assert classify(error).code == code


def test_of_several_errors_the_gravest_counts_and_the_first_of_those_that_are_alike() -> None:
    passing, lasting, also = Transient("x", code="t"), Permanent("x", code="p"), Permanent("x", code="q")
    broken = Critical("x", code="c")

    assert classify(ExceptionGroup("all", [passing, lasting, also])) == Class(PERMANENT, "p")
    assert classify(ExceptionGroup("all", [broken, lasting])) == Class(Category.CRITICAL, "c")
    assert classify(ExceptionGroup("all", [ExceptionGroup("some", [lasting]), passing])).code == "p"


def raised(error: Exception) -> Exception:
    """The error with a stack of two frames."""

    def deeper() -> None:
        raise error

    try:
        deeper()
    except Exception as caught:  # noqa: BLE001
        return caught
    raise AssertionError


def test_a_failure_reports_all_there_is_to_know_of_an_exception() -> None:
    error = raised(Answered(404))
    told = failure(error, attempt=2, worker="w")

    assert (told.category, told.code, told.attempt, told.worker) == (PERMANENT, "http_404", 2, "w")
    assert told.details == {"exception": f"{__name__}.Answered"}
    assert told.stack == "".join(traceback.format_exception(error))
    assert (failure(error).attempt, failure(error).worker) == (0, "")


def test_an_exception_without_words_is_reported_by_its_name() -> None:
    assert failure(ValueError()).message == "ValueError"


def test_a_stack_that_cannot_be_printed_is_reported_without_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(error: BaseException) -> list[str]:
        raise RuntimeError("not this one")

    monkeypatch.setattr(traceback, "format_exception", broken)
    error = raised(ValueError("x"))

    assert failure(error).stack == "".join(traceback.format_tb(error.__traceback__))
