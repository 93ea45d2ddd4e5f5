"""Policy and Retry: how a queue's leases behave and how often a task is tried, checked when they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from functools import partial
from typing import Any

from unstuck.errors import ConfigError
from unstuck.redact import redact
from unstuck.seconds import Seconds

YEAR = 366 * 86400.0
LONGEST_LEASE = 7 * 86400.0
_UNITS = {"seconds": timedelta(seconds=1), "days": timedelta(days=1)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_TASK = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often a task is tried and how long it waits in between (seconds; the last step repeats)."""

    attempts: int
    backoff: tuple[float, ...]

    def __init__(self, attempts: int = 3, *, backoff: tuple[Seconds, ...] = (1.0, 2.0, 4.0)) -> None:
        keep = partial(object.__setattr__, self)
        keep("attempts", whole("attempts", attempts, 1, 1000))
        keep("backoff", _steps("backoff", backoff))


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most ``count`` starts in any span of ``per`` seconds, by all workers of the store together.

    Queues that name the same ``bucket`` share it; without one the queue has its own.
    """

    count: int
    per: float
    bucket: str

    def __init__(self, count: int, per: Seconds = 60.0, bucket: str = "") -> None:
        keep = partial(object.__setattr__, self)
        keep("count", whole("rate count", count, 1, 1_000_000))
        keep("per", number("rate per", per, 0.1, 86400.0))
        keep("bucket", queue_name(bucket) if bucket else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for a whole queue. All tasks of a queue share one policy.

    ``max_crashes`` None: a crash is an attempt like any other. ``lapse_backoff`` is the wait after a
    lease ran out; empty means the job is free at once. ``limit`` and ``lane_limit`` bound how many jobs
    run at a time on all workers together. ``stages`` are lease lengths of their own, by stage; ``factors`` say
    how many times as long as a stage is expected to take its lease lasts at least, once if not said. Finished
    jobs are kept for ``retention`` days, or for ever if it is None. ``retention_from`` names an environment
    variable that must say these days, 7 to 30, before a worker starts; whoever only enqueues does not need it.
    """

    lease: float = 20.0
    heartbeat: float = 5.0
    max_crashes: int | None = None
    lapse_backoff: tuple[float, ...] = ()
    rate: Rate | None = None
    limit: int | None = None
    lane_limit: int | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    retention: float | None = 14.0
    retention_from: str = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, checked(each.name, getattr(self, each.name)))
        self._outlasts("lease", self.lease)
        for stage, seconds in self.stages.items():
            self._outlasts(_lease_of(stage), seconds)

    def _outlasts(self, what: str, seconds: float) -> None:
        if seconds < 2 * self.heartbeat + max(1.0, seconds / 10):
            shortest = math.ceil(100 * max(2 * self.heartbeat + 1.0, 2 * self.heartbeat / 0.9)) / 100 + 0.01
            raise ConfigError(
                f"{what} is {seconds:g} s, but with a heartbeat of {self.heartbeat:g} s it must be at least "
                f"{shortest:.12g} s (2 × heartbeat + max(1 s, lease/10)): lengthen the lease or beat more often"
            )

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that are set, as plain data."""
        found = {"limit": self.limit, "lane_limit": self.lane_limit, "rate": self.rate and asdict(self.rate)}
        return {name: value for name, value in found.items() if value is not None}

    def differences(self, other: Policy) -> list[str]:
        """In which fields two policies disagree, in words."""
        return [
            f"{field.name} {mine!r} and {theirs!r}"
            for field in fields(self)
            if (mine := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]


def checked(name: str, value: Any) -> Any:
    """The value as a field of a Policy keeps it; refuses what it cannot be, whatever its other fields are."""
    match name:
        case "lease":
            return number(name, value, 0.5, LONGEST_LEASE)
        case "heartbeat":
            return number(name, value, 0.05, LONGEST_LEASE)
        case "max_crashes" if value is not None:
            return whole(name, value, 1, 1000)
        case "lapse_backoff":
            return _steps(name, value)
        case "rate" if not isinstance(value, Rate | None):
            raise ConfigError(f"rate is {shown(value)}: it must be a Rate, for example Rate(20, per=60)")
        case "limit" | "lane_limit" if value is not None:
            return whole(name, value, 1, 1_000_000)
        case "stages":
            return _stages(value)
        case "factors":
            _factors(value)
        case "retention" if value == "forever":
            return None
        case "retention" if value is not None:
            return number(name, value, 0.01, 3660.0, "days")
        case "retention_from" if value != "" and not (isinstance(value, str) and _VARIABLE.fullmatch(value)):
            raise ConfigError(f"retention_from is {shown(value)}: it must name an environment variable")
    return value


def must_agree(queues: Mapping[str, Policy]) -> None:
    """Refuse different rates for one bucket: nobody could say which of them holds."""
    found: dict[str, tuple[str, Rate]] = {}
    for name, policy in queues.items():
        if (rate := policy.rate) is None:
            continue
        other, first = found.setdefault(bucket := rate.bucket or name, (name, rate))
        if (rate.count, rate.per) != (first.count, first.per):
            raise ConfigError(
                f"bucket {bucket!r} has {first.count} per {first.per:g} s in queue {other!r} and {rate.count} per "
                f"{rate.per:g} s in queue {name!r}: make them agree, or give one another bucket"
            )


def queue_name(name: Any, what: str = "queue name") -> str:
    """The name, if it can be one of a queue in every store."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {shown(name)} is not allowed: 1 to 100 letters, digits, '_', '.' or '-', "
            "beginning with a letter or digit"
        )
    return name


def task_name(name: Any) -> str:
    if not isinstance(name, str) or not _TASK.fullmatch(name):
        raise ConfigError(
            f"task name {shown(name)} is not allowed: 1 to 128 letters, digits, '_', '.', ':' or '-', "
            "beginning with a letter or '_'"
        )
    return name


def lane_name(lane: Any) -> str:
    if not isinstance(lane, str) or not 1 <= len(lane) <= 100 or not lane.isprintable():
        raise ConfigError(f"lane {shown(lane)} is not allowed: a text of 1 to 100 printable characters")
    return lane


def job_key(key: Any) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 255 or not key.isprintable():
        raise ConfigError(f"key {shown(key)} is not allowed: a text of 1 to 255 printable characters")
    return key


def whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is {shown(value)}: it must be a whole number from {least} to {most}")
    return value


def number(what: str, value: Any, least: float, most: float, unit: str = "seconds") -> float:
    """The number, or a timedelta as a number of its unit."""
    if isinstance(value, timedelta) and unit in _UNITS:
        value /= _UNITS[unit]
    # Said so that NaN is refused, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(
            f"{what} is {shown(value)}: it must be a number from {least:.12g} to {most:.12g} ({unit})"
        )
    return float(value)


def within_a_day(what: str, value: Any) -> float:
    """The seconds for which a worker or a reaper waits."""
    return number(what, value, 0.0, 86400.0)


def at_a_time(what: str, value: Any) -> int:
    """How many jobs one process runs."""
    return whole(what, value, 1, 10_000)


def _steps(what: str, steps: Any) -> tuple[float, ...]:
    if not isinstance(steps, tuple) or len(steps) > 100:
        raise ConfigError(f"{what} is {shown(steps)}: it must be a tuple of at most 100 numbers (seconds)")
    return tuple(number(what, step, 0.0, YEAR) for step in steps)


def _stages(stages: Any) -> dict[Any, float]:
    if not isinstance(stages, Mapping):
        raise ConfigError(f"stages is {shown(stages)}: it must give a lease for each stage, in seconds")
    return {stage: number(_lease_of(stage), seconds, 0.5, LONGEST_LEASE) for stage, seconds in stages.items()}


def _factors(factors: Any) -> None:
    if not isinstance(factors, Mapping):
        raise ConfigError(f"factors is {shown(factors)}: it must give a number for each stage")
    for stage, factor in factors.items():
        number(f"factor of stage {shown(stage)}", factor, 1.0, 1000.0, "times the expected duration")


def _lease_of(stage: Any) -> str:
    return f"lease of stage {shown(stage)}"


def shown(value: Any, limit: int = 60) -> str:
    """A value as a message can repeat it: short, on one line and without secrets."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a number of thousands of digits"
    return redact(text, limit)  # before it is cut: what is left of an address may no longer look like one
