"""Retry and Exponential: how often a task is tried, which errors are tried again, and how long it waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from unstuck.config.checks import YEAR, number, shown, whole
from unstuck.protocol.classify import TaskErrors
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import USUAL_ATTEMPTS, USUAL_BACKOFF
from unstuck.text.durations import Seconds

MOST_STEPS = 100  # of a backoff: each job carries them


@dataclass(frozen=True, slots=True, init=False)
class Exponential:
    """A backoff that grows: ``base`` seconds, then ``factor`` times as long after each failure, up to ``longest`` ::

    Retry(attempts=8, backoff=Exponential(base=1, factor=2, longest=600))  # 1, 2, 4, 8 s, … 10 min at most
    """

    base: float
    factor: float
    longest: float

    def __init__(self, base: Seconds = 1.0, factor: float = 2.0, longest: Seconds = 600.0) -> None:
        keep = partial(object.__setattr__, self)
        keep("base", number("base", base, 0.001, YEAR))
        keep("factor", number("factor", factor, 1.0, 1000.0, "times the wait before"))
        keep("longest", number("longest", longest, 0.001, YEAR))
        if self.longest < self.base:
            raise ConfigError(
                f"longest is {self.longest:g} s and base {self.base:g} s: longest must be at least as long as base"
            )

    def steps(self, attempts: int) -> tuple[float, ...]:
        """The waits up to the longest one, as jobs carry them."""
        found = tuple(self._waits())
        if found[-1] < self.longest and self.factor > 1 and attempts - 1 > MOST_STEPS:
            raise ConfigError(
                f"backoff grows by {self.factor:g} for more than {MOST_STEPS} steps, which is as many as a job carries: "
                f"raise factor, or lower longest to {found[-1]:.6g} s or attempts to {MOST_STEPS + 1}"
            )
        return found

    def _waits(self) -> Iterator[float]:
        wait = self.base
        for _ in range(MOST_STEPS):
            yield min(wait, self.longest)
            if self.factor == 1 or wait >= self.longest:
                return
            wait *= self.factor


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often a task is tried, how long it waits after each failure, and which errors are tried again.

    Five attempts, the second after 10 seconds, the others after a minute each (the last step repeats)::

        @app.task(retry=Retry(5, backoff=(10, 60)))

    ``on`` names classes of errors that are tried again, ``never`` those that fail the job at once. Subclasses count, and
    ``never`` wins. Any other error means what it means everywhere. What a handler says itself, by raising ``Transient``,
    ``Permanent`` or ``Critical``, holds unless that class is named::

        Retry(5, backoff=Exponential(longest=600), on=(httpx.TransportError,), never=(ValueError,))
    """

    attempts: int
    backoff: tuple[float, ...]
    on: tuple[type[Exception], ...]
    never: tuple[type[Exception], ...]

    def __init__(
        self,
        attempts: int = USUAL_ATTEMPTS,
        *,
        backoff: tuple[Seconds, ...] | Exponential = USUAL_BACKOFF,
        on: tuple[type[Exception], ...] = (),
        never: tuple[type[Exception], ...] = (),
    ) -> None:
        keep = partial(object.__setattr__, self)
        keep("attempts", whole("attempts", attempts, 1, 1000))
        if isinstance(backoff, Exponential):
            backoff = backoff.steps(self.attempts)
        keep("backoff", steps("backoff", backoff))
        keep("on", _kinds("on", on))
        keep("never", _kinds("never", never))

    @property
    def errors(self) -> TaskErrors:
        return TaskErrors(self.on, self.never)

    def of_a_job(self) -> Retry:
        """The same, if a job can carry it: classes are in the code of its workers."""
        if self.on or self.never:
            raise ConfigError(
                "on and never of a Retry are part of a task's code, which its workers have, and cannot be sent with a job: "
                "give them where the task is declared, @app.task(retry=Retry(…))"
            )
        return self


def retry_policy(retry: Retry | int | None) -> Retry:
    """What ``retry`` means: a Retry as it is, a number of attempts with the usual backoff, or all of the usual."""
    if not isinstance(retry, Retry | int | None):
        raise ConfigError(f"retry is {retry!r}: it must be a number of attempts or a Retry(…)")
    if isinstance(retry, Retry):
        return retry
    return Retry() if retry is None else Retry(retry)


def steps(what: str, given: Any) -> tuple[float, ...]:
    """Seconds to wait, step by step."""
    if not isinstance(given, tuple) or len(given) > MOST_STEPS:
        or_growing = ", or an Exponential(…)" if what == "backoff" else ""
        raise ConfigError(
            f"{what} is {shown(given)}: it must be a tuple of at most {MOST_STEPS} numbers (seconds){or_growing}"
        )
    return tuple(number(what, step, 0.0, YEAR) for step in given)


def _kinds(what: str, given: Any) -> tuple[type[Exception], ...]:
    if not isinstance(given, tuple):
        raise ConfigError(
            f"{what} is {shown(given)}: it must be a tuple of exception classes, as {what}=(TimeoutError,)"
        )
    for kind in given:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigError(
                f"{what} has {shown(kind)}: it must name classes of errors, Exception or those derived from it"
            )
    return given
