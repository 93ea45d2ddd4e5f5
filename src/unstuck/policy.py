"""Policy and Retry: how a queue's leases behave and how often a task is tried, checked when they are made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from unstuck.errors import ConfigError

YEAR = 366 * 86400.0
LONGEST_LEASE = 7 * 86400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_TASK = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a task is tried and how long it waits in between (seconds; the last step repeats)."""

    attempts: int = 3
    backoff: tuple[float, ...] = (1.0, 2.0, 4.0)

    def __post_init__(self) -> None:
        whole("attempts", self.attempts, 1, 1000)
        _steps("backoff", self.backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for a whole queue. All tasks of a queue share one policy.

    ``max_crashes`` None: a crash is an attempt like any other. ``lapse_backoff`` is the wait after a
    lease ran out; empty means the job is free at once.
    """

    lease: float = 20.0
    heartbeat: float = 5.0
    max_crashes: int | None = None
    lapse_backoff: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        number("lease", self.lease, 0.5, LONGEST_LEASE)
        number("heartbeat", self.heartbeat, 0.05, LONGEST_LEASE)
        if self.lease < 2 * self.heartbeat + max(1.0, self.lease / 10):
            shortest = math.ceil(100 * max(2 * self.heartbeat + 1.0, 2 * self.heartbeat / 0.9)) / 100 + 0.01
            raise ConfigError(
                f"lease is {self.lease:g} s, but with a heartbeat of {self.heartbeat:g} s it must be at least "
                f"{shortest:.12g} s (2 × heartbeat + max(1 s, lease/10)): lengthen the lease or beat more often"
            )
        if self.max_crashes is not None:
            whole("max_crashes", self.max_crashes, 1, 1000)
        _steps("lapse_backoff", self.lapse_backoff)

    def differences(self, other: Policy) -> list[str]:
        """In which fields two policies disagree, in words."""
        return [
            f"{field.name} {mine!r} and {theirs!r}"
            for field in fields(self)
            if (mine := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]


def queue_name(name: Any) -> str:
    """The name, if it can be one of a queue in every store."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"queue name {_short(name)} is not allowed: 1 to 100 letters, digits, '_', '.' or '-', "
            "beginning with a letter or digit"
        )
    return name


def task_name(name: Any) -> str:
    if not isinstance(name, str) or not _TASK.fullmatch(name):
        raise ConfigError(
            f"task name {_short(name)} is not allowed: 1 to 128 letters, digits, '_', '.', ':' or '-', "
            "beginning with a letter or '_'"
        )
    return name


def job_key(key: Any) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 255 or not key.isprintable():
        raise ConfigError(f"key {_short(key)} is not allowed: a text of 1 to 255 printable characters")
    return key


def whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is {_short(value)}: it must be a whole number from {least} to {most}")
    return value


def number(what: str, value: Any, least: float, most: float) -> float:
    if (
        isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most
    ):  # also NaN
        raise ConfigError(
            f"{what} is {_short(value)}: it must be a number from {least:g} to {most:g} (seconds)"
        )
    return float(value)


def _steps(what: str, steps: Any) -> None:
    if not isinstance(steps, tuple) or len(steps) > 100:
        raise ConfigError(f"{what} is {_short(steps)}: it must be a tuple of at most 100 numbers (seconds)")
    for step in steps:
        number(what, step, 0.0, YEAR)


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"
