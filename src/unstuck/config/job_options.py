"""Options of one job: its key, priority, delay and lane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from unstuck.config.checks import YEAR, job_key, lane_name, number, whole
from unstuck.protocol.errors import ConfigError
from unstuck.text.durations import Seconds

EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
LATEST = datetime(3000, 1, 1, tzinfo=UTC)


class JobOptions(TypedDict, total=False):
    """What interfaces take of them."""

    key: str | None
    again: bool
    priority: int
    delay: Seconds
    run_at: datetime | None
    lane: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked when they are made, for every interface alike."""

    key: str | None = None
    again: bool = False
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    lane: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            job_key(self.key)
        if self.again and self.key is None:
            raise ConfigError("again=True needs a key: it starts the finished job with that key over")
        if self.lane is not None:
            lane_name(self.lane)
        whole("priority", self.priority, 0, 9)
        number("delay", self.delay, 0.0, 10 * YEAR, "seconds: ten years")
        if self.run_at is not None:
            _instant(self.run_at)
            if self.delay:
                raise ConfigError("delay and run_at both set the time: give one of them")


def _instant(run_at: Any) -> None:
    if not isinstance(run_at, datetime):
        raise ConfigError(f"run_at {str(run_at)[:60]!r} is not a time: use a datetime with a time zone")
    if run_at.tzinfo is None:
        raise ConfigError(
            f"run_at {run_at} has no time zone: add one, for example tzinfo=UTC, or +00:00 in a text"
        )
    if not EARLIEST <= run_at < LATEST:
        allowed = f"from {EARLIEST:%Y} to {LATEST.year - 1}"
        raise ConfigError(f"run_at {run_at} is out of range, {allowed}: leave it out to run at once")
