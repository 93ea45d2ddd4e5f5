"""Overview: how a store stands at one moment. ``unstuck top`` and ``unstuck status`` print it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from unstuck.operations.health import HealthStatus
from unstuck.operations.schedules import ScheduleStatus
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job
from unstuck.protocol.operators import Counts


class Overview(Struct, frozen=True, kw_only=True):
    """``now`` is the store's time. ``workers`` are those that are alive, ``running`` and ``dead`` the newest jobs of each kind."""

    now: datetime
    health: HealthStatus
    queues: list[Counts]
    workers: list[WorkerInfo]
    schedules: list[ScheduleStatus]
    running: list[Job]
    dead: list[Job]

    @property
    def taken(self) -> set[str]:
        """The queues that a living worker takes jobs from."""
        return {queue for worker in self.workers for queue in worker.queues}
