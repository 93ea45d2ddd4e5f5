"""What operators ask for and see: jobs by filter, counts, events, findings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from unstuck.protocol.job import Category, Job, Json, Status


class Filter(Struct, frozen=True, kw_only=True, gc=False):
    """Which jobs. Every field that is set must hold; ``older_than`` counts seconds since they finished."""

    queue: str | None = None
    ids: tuple[str, ...] | None = None
    status: Status | None = None
    task: str | None = None
    key: str | None = None
    owner: str | None = None
    category: Category | None = None
    code: str | None = None
    dead: bool = False
    older_than: float | None = None


class Page(NamedTuple):
    """Some jobs, and where the next page begins, None behind the last."""

    jobs: list[Job]
    cursor: str | None


class Counts(Struct, frozen=True, kw_only=True):
    """One queue in numbers. ``delayed`` is part of pending, ``expired`` of processing, ``cancelled`` of failed.

    ``waited`` is for how many seconds the next in line has been due, or a job that has no position there yet, if that is
    longer; None if none is due. ``paused`` and ``halted`` are the reasons: of a pause, which somebody asked for, and of a
    halt after a CRITICAL error. Nothing is leased while there is either, and ``pause`` without a reason lifts both. ``totals`` counts all that was settled: each ending, ``crashed``, the cancelled that ``expired``, and
    :func:`unstuck.stores.shared.events.reaped` once more. ``ahead`` counts the due jobs before the one that was asked about, up to
    :data:`unstuck.stores.shared.events.COUNTED_PLACES`; it is 0 for one that is not in line.
    """

    queue: str
    pending: int = 0
    delayed: int = 0
    processing: int = 0
    expired: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    waited: float | None = None
    paused: str | None = None
    halted: str | None = None
    totals: Mapping[str, int] = {}
    ahead: int = 0
    trouble: str | None = None  # why they could not be counted: the table is locked, or has changed

    @property
    def due(self) -> int:
        return self.pending - self.delayed

    @property
    def dead(self) -> int:
        return self.failed - self.cancelled

    @property
    def stopped(self) -> str:
        """In words why nothing is leased: halted or paused or both, with the reasons; empty if neither."""
        reasons = {"halted": self.halted, "paused": self.paused}
        return "; ".join(f"{word}: {why}" for word, why in reasons.items() if why is not None)


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened to a job, or to a queue (no ``job``). ``data`` has ``type``, ``table`` and ``details``."""

    cursor: str
    at: datetime
    type: str
    queue: str
    job: str | None
    data: Mapping[str, Json]


class Finding(Struct, frozen=True, gc=False):
    """Something about a store: ``level`` is ok, warning or failure, ``fix`` what to do about it.

    ``broken`` means that a rule which must always hold does not.
    """

    level: str
    what: str
    fix: str = ""
    broken: bool = False
