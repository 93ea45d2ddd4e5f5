"""The workers, as each presents itself with every heartbeat, and the schedules they fire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from unstuck.protocol.job import Json


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a worker fares. ``patterns`` counts the latest errors by code while it is not healthy.

    Successes and failures are those of the last hundred attempts.
    """

    status: str = "HEALTHY"
    why: str = ""
    consecutive_failures: int = 0
    successes: int = 0
    failures: int = 0
    last_success: datetime | None = None
    patterns: Mapping[str, int] = {}
    consuming: bool = True  # the store answers it when it asks for work
    recovering: bool = True


class WorkerInfo(Struct, frozen=True, kw_only=True, gc=False):
    """A worker as it presents itself with every heartbeat. ``id`` is unique per process start.

    ``identity`` distinguishes its process from all others of its host, where the system makes that possible.
    """

    id: str
    host: str = ""
    pid: int = 0
    identity: str = ""
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()  # that its code declares, which it fires
    fires_stored: bool = False  # also those that were made at run time
    limits: Mapping[str, Mapping[str, Json]] = {}  # of its queues, by the names that Policy has for them
    concurrency: int = 0
    running: int = 0
    left: bool = False  # it has ended, and meant to
    health: Health = Health()
    scan_ms: float | None = None  # how long the last scan of its reaper took
    started_at: datetime | None = None  # both stamped by the store
    seen_at: datetime | None = None


class Fleet(NamedTuple):
    """The workers, the one with the latest heartbeat first, and for which slot each schedule fired last, by the schedule's name."""

    workers: list[WorkerInfo]
    slots: dict[str, datetime]
