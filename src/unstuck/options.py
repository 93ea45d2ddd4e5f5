"""Options: how one job differs from its task's other jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from unstuck.errors import ConfigError
from unstuck.policy import YEAR, job_key, number, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked when they are made, whoever makes them."""

    key: str | None = None
    again: bool = False
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            job_key(self.key)
        if self.again and self.key is None:
            raise ConfigError("again=True needs a key: it starts the finished job with that key over")
        whole("priority", self.priority, 0, 9)
        number("delay", self.delay, 0.0, 10 * YEAR)
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise ConfigError(
                f"run_at {self.run_at} has no time zone: add one, for example datetime.now(UTC)"
            )
