"""Options of one job: its key, how jobs of that key are spaced out, its priority, times and lane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from unstuck.config.checks import YEAR, job_key, lane_name, number, whole
from unstuck.protocol.errors import ConfigError
from unstuck.text.durations import Seconds, in_seconds

SHORTEST = 0.1  # seconds between jobs of a key
EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
LATEST = datetime(3000, 1, 1, tzinfo=UTC)


class JobOptions(TypedDict, total=False):
    """What interfaces take of them."""

    key: str | None
    again: bool
    debounce: Seconds | None
    throttle: Seconds | None
    priority: int
    delay: Seconds
    run_at: datetime | None
    lane: str | None
    expires: Seconds | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked when they are made, for every interface alike."""

    key: str | None = None
    again: bool = False
    debounce: float | None = None
    throttle: float | None = None
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    lane: str | None = None
    expires: Seconds | datetime | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            job_key(self.key)
        if self.again and self.key is None:
            raise ConfigError("again=True needs a key: it starts the finished job with that key over")
        for name in ("debounce", "throttle"):
            if getattr(self, name) is not None:
                self._check_spacing(name)
        if self.lane is not None:
            lane_name(self.lane)
        whole("priority", self.priority, 0, 9)
        number("delay", self.delay, 0.0, 10 * YEAR, "seconds: ten years")
        object.__setattr__(self, "expires", expiry(self.expires))
        if self.run_at is not None:
            _instant("run_at", self.run_at, "run at once")
            if self.delay:
                raise ConfigError("delay and run_at both set the time: give one of them")

    def _check_spacing(self, name: str) -> None:
        number(name, getattr(self, name), SHORTEST, YEAR)
        if self.key is None:
            raise ConfigError(f"{name} needs a key: it spaces out the jobs with that key")
        if self.debounce is not None and self.throttle is not None:
            raise ConfigError("debounce runs the last call and throttle the first: give one of them")
        if self.again:
            raise ConfigError(
                f"{name} makes a new job when its interval is over, so again=True has no meaning: leave it out"
            )
        if self.debounce is not None and (self.delay or self.run_at is not None):
            raise ConfigError("debounce sets the time: leave delay and run_at out")


def expiry(expires: Seconds | datetime | None) -> float | datetime | None:
    """When a job expires: an instant as it is, a length of time in seconds."""
    if expires is None:
        return None
    if isinstance(expires, datetime):
        _instant("expires", expires, "let it wait for ever")
        return expires
    return number(
        "expires", in_seconds(expires), 0.001, 10 * YEAR, "seconds: ten years, or a datetime with a time zone"
    )


def _instant(what: str, when: Any, otherwise: str) -> None:
    if not isinstance(when, datetime):
        raise ConfigError(f"{what} {str(when)[:60]!r} is not a time: use a datetime with a time zone")
    if when.tzinfo is None:
        raise ConfigError(
            f"{what} {when} has no time zone: add one, for example tzinfo=UTC, or +00:00 in a text"
        )
    if not EARLIEST <= when < LATEST:
        allowed = f"from {EARLIEST:%Y} to {LATEST.year - 1}"
        raise ConfigError(f"{what} {when} is out of range, {allowed}: leave it out to {otherwise}")
