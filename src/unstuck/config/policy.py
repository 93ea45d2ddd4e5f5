"""Policy and Rate: the terms of a queue, checked when they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any

from unstuck.config.checks import LONGEST_LEASE, number, queue_name, shown, whole, within_a_day
from unstuck.config.retry import steps
from unstuck.protocol.errors import ConfigError
from unstuck.text.durations import Seconds

RECOVERY = 60.0  # seconds between recoveries where nothing else is set
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most ``count`` starts in any span of ``per`` seconds, by all workers of the store together.

    Queues that name the same ``bucket`` share one budget; without a name each queue has its own::

        app.queue("mail", rate=Rate(20, per=60, bucket="provider"))
        app.queue("news", rate=Rate(20, per=60, bucket="provider"))
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
    """The terms of a queue. All tasks of a queue share one policy.

    Applications give its fields as options: ``app.queue("media", lease=120, heartbeat=12, lane_limit=5)``.

    ``lease``: seconds until a job without a heartbeat counts as lost. ``heartbeat``: seconds between heartbeats.
    ``max_crashes``: how often a job may crash, counted apart from failures; None counts a crash as an attempt.
    ``lapse_backoff``: seconds to wait after a lease ran out, step by step; empty means that the job is free at once.
    ``limit``, ``lane_limit``: how many jobs of the queue, or of one lane, run at a time on all workers together.
    ``stages``: leases of their own, by stage.
    ``factors``: by stage, how many times the expected duration a lease lasts at least; once by default.
    ``retention``: days that finished jobs are kept; None keeps them for ever.
    ``retention_from``: an environment variable that must hold these days, 7 to 30, before a worker starts. Programs
    that only enqueue do not need it.
    ``recovery``: seconds between the recoveries of this queue's workers, unless the worker has its own; 0 means off.
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
    recovery: float | None = None

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
        """The fields in which two policies disagree, with both values."""
        return [
            f"{field.name} {mine!r} and {theirs!r}"
            for field in fields(self)
            if (mine := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]


def checked(name: str, value: Any) -> Any:
    """The value of one field of a Policy, checked apart from the other fields."""
    match name:
        case "lease":
            return number(name, value, 0.5, LONGEST_LEASE)
        case "heartbeat":
            return number(name, value, 0.05, LONGEST_LEASE)
        case "max_crashes" if value is not None:
            return whole(name, value, 1, 1000)
        case "lapse_backoff":
            return steps(name, value)
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
        case "recovery" if value is not None:
            return within_a_day(name, value)
        case "retention_from" if value != "" and not (isinstance(value, str) and _VARIABLE.fullmatch(value)):
            raise ConfigError(f"retention_from is {shown(value)}: it must name an environment variable")
    return value


def must_agree(queues: Mapping[str, Policy]) -> None:
    """Refuse different rates for one bucket: it would not be clear which of them holds."""
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


def recovery_of(queues: Mapping[str, Policy]) -> float:
    """The seconds between recoveries that these queues ask for; one worker can have only one interval."""
    asked = {name: policy.recovery for name, policy in queues.items() if policy.recovery is not None}
    if not asked:
        return RECOVERY
    (first, seconds), *others = asked.items()
    for name, other in others:
        if other != seconds:
            raise ConfigError(
                f"queue {first!r} asks for a recovery every {seconds:g} s and queue {name!r} for one every {other:g} s: "
                "make them agree, or give the worker an interval (--recovery, UNSTUCK_RECOVERY)"
            )
    return seconds


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
