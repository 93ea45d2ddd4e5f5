"""What a Retry takes: a backoff that grows, and classes of errors; and what a task's own classes change of an error's meaning."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.refusal import refusal

from unstuck import Category, Critical, Exponential, Permanent, Retry, StoreDamaged, Transient, classify
from unstuck.protocol.classify import Refusal, TaskErrors, failure

TRANSIENT, PERMANENT, CRITICAL = Category.TRANSIENT, Category.PERMANENT, Category.CRITICAL
WRONG: Any = Retry


class Answer(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code, self.headers = status, headers


class Busy(Transient):
    pass


@pytest.mark.parametrize(
    ("growing", "steps"),
    [
        (Exponential(1, 2, 600), (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600)),
        (Exponential(base=1, factor=2, longest=8), (1, 2, 4, 8)),
        (Exponential(base=5, factor=1, longest=600), (5,)),
        (Exponential(base=5, factor=10, longest=5), (5,)),
        (Exponential(timedelta(minutes=1), longest=timedelta(minutes=3)), (60, 120, 180)),
    ],
)
def test_a_growing_backoff_is_the_steps_that_a_job_carries(
    growing: Exponential, steps: tuple[float, ...]
) -> None:
    assert Retry(3, backoff=growing).backoff == steps
    assert Retry(1000, backoff=growing) == Retry(1000, backoff=steps)


def test_a_backoff_that_grows_slowly_has_as_many_steps_as_there_are_attempts_at_most() -> None:
    slow = Exponential(1, 1.01, 600)

    assert Retry(101, backoff=slow).backoff == pytest.approx([1.01**n for n in range(100)])
    assert refusal(lambda: Retry(102, backoff=slow)) == (
        "backoff grows by 1.01 for more than 100 steps, which is as many as a job carries: "
        "raise factor, or lower longest to 2.67803 s or attempts to 101"
    )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Exponential(0), "base is 0: it must be a number from 0.001 to 31622400 (seconds)"),
        (lambda: Exponential(factor=0.5), "factor is 0.5: it must be a number from 1 to 1000 (times the wait before)"),
        (lambda: Exponential(longest=1e9), "longest is 1000000000.0: it must be a number from 0.001 to 31622400 (seconds)"),
        (lambda: Exponential(60, longest=30), "longest is 30 s and base 60 s: longest must be at least as long as base"),
        (lambda: WRONG(on=[ValueError]), "on is [<class 'ValueError'>]: it must be a tuple of exception classes, as on=(TimeoutError,)"),
        (lambda: WRONG(never=ValueError), "never is <class 'ValueError'>: it must be a tuple of exception classes, as never=(TimeoutError,)"),
        (lambda: WRONG(never=(ValueError("x"),)), "never has ValueError('x'): it must name classes of errors, Exception or those derived from it"),
        (lambda: WRONG(on=(SystemExit,)), "on has <class 'SystemExit'>: it must name classes of errors, Exception or those derived from it"),
        (lambda: WRONG(backoff=600), "backoff is 600: it must be a tuple of at most 100 numbers (seconds), or an Exponential(…)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_rule(make: Callable[[], object], told: str) -> None:
    assert refusal(make) == told


@pytest.mark.parametrize(
    ("error", "on", "never", "category"),
    [
        (NotImplementedError(), (NotImplementedError,), (), TRANSIENT),
        (NotImplementedError(), (RuntimeError,), (), TRANSIENT),  # which it is derived from
        (NotImplementedError(), (Exception,), (RuntimeError,), PERMANENT),
        (KeyError(), (), (LookupError,), PERMANENT),
        (
            KeyError(),
            (KeyError,),
            (LookupError,),
            PERMANENT,
        ),  # never wins, also by a class that is further away
        (KeyError(), (), (ValueError,), TRANSIENT),
        (FileNotFoundError(2, "no"), (ValueError,), (), PERMANENT),  # as it is without a list
        (Permanent(), (Exception,), (), PERMANENT),
        (Permanent(), (Permanent,), (), TRANSIENT),
        (Busy(), (), (Exception,), TRANSIENT),
        (Busy(), (), (Transient,), PERMANENT),
        (Critical(), (Critical,), (Critical,), CRITICAL),
        (StoreDamaged(), (Exception,), (Exception,), CRITICAL),
        (SystemExit(), (), (Exception,), TRANSIENT),
        (asyncio.CancelledError(), (), (Exception,), TRANSIENT),
        (concurrent.futures.CancelledError(), (), (Exception,), TRANSIENT),
        (ExceptionGroup("", [KeyError(), OSError()]), (), (LookupError,), PERMANENT),
        (ExceptionGroup("", [NotImplementedError(), OSError()]), (NotImplementedError,), (), TRANSIENT),
        (ExceptionGroup("", [KeyError(), StoreDamaged()]), (Exception,), (Exception,), CRITICAL),
        (ExceptionGroup("", [KeyError()]), (), (ExceptionGroup,), PERMANENT),
    ],
)
def test_a_task_may_decide_itself_what_is_tried_again(
    error: BaseException,
    on: tuple[type[Exception], ...],
    never: tuple[type[Exception], ...],
    category: Category,
) -> None:
    errors = TaskErrors(on, never)

    assert classify(error, errors).category is category
    assert failure(error, errors).category is category


def test_an_error_that_is_tried_again_keeps_the_pause_that_was_asked_for() -> None:
    asked = Answer(503, **{"retry-after": "7"})
    refused = Answer(429, **{"retry-after": "7"})

    assert classify(asked, TaskErrors(on=(Answer,))) == (TRANSIENT, "http_503", 7.0, None)
    assert classify(refused, TaskErrors(on=(Answer,))) == (TRANSIENT, "http_429", 7.0, Refusal.RATE)
    assert classify(refused, TaskErrors(never=(Answer,))) == (PERMANENT, "http_429", None, None)
