"""Schedule: jobs at set times, declared in code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from unstuck.app.call import Call
from unstuck.config.checks import queue_name, shown
from unstuck.config.timing import Timing
from unstuck.operations.new_job import job_of_slot
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Timing):
    """When to enqueue a job like ``call``: by a ``cron`` expression in a time zone, or ``every`` so many seconds.

    ::

        Schedule(name="report", call=report.call(), cron="0 3 * * *", tz="Europe/Berlin")
        Schedule(name="poll", call=poll.call("inbox"), every=30, catch_up="none")

    Intervals count from 1970, so that all processes find the same slots. Each slot enqueues a job, also if it fires up to
    a minute late. ``catch_up`` decides about older slots, for which no process was there to fire: one job for
    the ``last`` slot, one for each of ``all`` (the latest 100), or ``none``. Slots that are left out are logged.
    """

    name: str
    call: Call[Any]

    def __post_init__(self) -> None:
        queue_name(self.name, "schedule name")
        what = f"schedule {self.name!r}"
        if not isinstance(self.call, Call):
            raise ConfigError(f"{what} has no call but {shown(self.call)}: give it a task.call(…)")
        if self.call.job.key is not None or self.call.job.run_at is not None:
            raise ConfigError(
                f"{what} has a call with a key or run_at: leave them out, each slot brings its own"
            )
        try:
            Timing.__post_init__(self)
        except ConfigError as error:
            raise ConfigError(f"{what}: {error}") from None

    def job(self, slot: datetime) -> NewJob:
        """The job of a slot; every process gives it the same key and id."""
        return job_of_slot(self.call.job, self.name, slot)
