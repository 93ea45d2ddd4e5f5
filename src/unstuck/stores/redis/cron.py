"""The next slot of a job scheduler of BullMQ's. Cron patterns mean what they mean to cron-parser, which BullMQ uses."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
    "@minutely": "0 * * * * *",
    "@secondly": "* * * * * *",
    "@weekdays": "0 0 0 * * 1-5",
    "@weekends": "0 0 0 * * 0,6",
}
_LEFT_OUT = ["0", "*", "*", "*", "*", "*"]  # the values of leading fields that a pattern omits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_slot(pattern: str, zone: str | None, after: int) -> int | None:
    """The first slot later than ``after``, in milliseconds; None if there is none. ValueError names what cannot be read."""
    moment = _EPOCH + timedelta(milliseconds=after)
    where = _zone(zone)
    try:
        simulated, hourly = _simulated(pattern, moment.astimezone(where))
        slots = (local if hourly else local.replace(tzinfo=where) for local in simulated)
        # In local time, slots of an hour that is skipped move to the next one, and an hour that comes twice counts once.
        found = next((slot for local in slots if (slot := local.astimezone(UTC)) > moment), None)
    except (CronSimError, OverflowError) as error:
        raise ValueError(f"cron pattern {pattern[:100]!r} is not understood: {error}") from None
    return None if found is None else (found - _EPOCH) // timedelta(milliseconds=1)


def _simulated(pattern: str, local: datetime) -> tuple[CronSim, bool]:
    """The slots from a moment on, and whether every hour has some: then they are in real time, otherwise in local time."""
    fields = _NAMED.get(pattern, pattern).split()
    fields = [*_LEFT_OUT[: max(0, 6 - len(fields))], *fields]
    days = [fields[at : at + 1] for at in (3, 5)]
    expression = " ".join(fields).replace("?", "*")
    hourly = len(CronSim(expression, local).hours) == 24
    simulated = CronSim(expression, local if hourly else local.replace(tzinfo=None))
    simulated.day_and = any(day in (["*"], ["?"]) for day in days)  # otherwise one of the two is enough
    return simulated, hourly


def _zone(name: str | None) -> tzinfo:
    """The named time zone; without a name that of this process, as in Node."""
    if name is None and (name := os.environ.get("TZ", "").removeprefix(":") or _system()) is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"time zone {name[:60]!r} is not known here") from None


def _system() -> str | None:
    path = Path("/etc/localtime")
    _, found, name = str(path.resolve()).partition("/zoneinfo/") if path.is_symlink() else ("", "", "")
    return name if found else None
