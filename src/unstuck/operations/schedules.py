"""Which schedules there are, and who fires them: a schedule lives in the code of workers, the store knows only its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from unstuck.protocol.fleet import WorkerInfo


class ScheduleStatus(Struct, frozen=True):
    """``last_slot`` is None until it has fired; ``fired_by`` are the ids of the living workers that declare it."""

    schedule: str
    last_slot: datetime | None
    fired_by: tuple[str, ...]


def firings(slots: Mapping[str, datetime], alive: Iterable[WorkerInfo]) -> list[ScheduleStatus]:
    """Every schedule that ever fired or that one of the workers declares, by name."""
    declared: dict[str, list[str]] = {name: [] for name in slots}
    for worker in alive:
        for name in worker.schedules:
            declared.setdefault(name, []).append(worker.id)
    return [ScheduleStatus(name, slots.get(name), tuple(sorted(by))) for name, by in sorted(declared.items())]


def overdue(slots: Mapping[str, datetime], alive: Iterable[WorkerInfo]) -> dict[str, datetime]:
    """The schedules that fired before and that nobody fires now, the longest silent first, with their last slots."""
    found = {
        one.schedule: one.last_slot
        for one in firings(slots, alive)
        if one.last_slot is not None and not one.fired_by
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))
