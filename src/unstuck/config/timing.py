"""Timing: the slots of a schedule, by a cron expression or an interval, and what becomes of those that were missed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from unstuck.config.checks import YEAR, number, shown
from unstuck.protocol.errors import ConfigError
from unstuck.text.durations import Seconds, in_seconds

CatchUp = Literal["last", "all", "none"]
MOST = 100  # missed slots that "all" fires for
MISSED = timedelta(seconds=60)  # a slot that is older was missed
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELDS = "five fields (minute, hour, day of month, month, day of week)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Either a ``cron`` expression in a time zone, or ``every`` so many seconds. Checked when it is made.

    Intervals count from 1970, so that all processes find the same slots.
    """

    cron: str | None = None
    every: Seconds | None = None
    tz: str = "UTC"
    catch_up: CatchUp = "last"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ConfigError("it needs either cron or every: for example cron='0 3 * * *' or every=60")
        if self.catch_up not in get_args(CatchUp):
            raise ConfigError(f"catch_up is {shown(self.catch_up)}: it must be 'last', 'all' or 'none'")
        zone = _zone(self.tz)
        if self.cron is not None:
            _check_cron(self.cron, zone)
        elif self.tz != "UTC":
            raise ConfigError("it has every and tz: intervals know no time zone, use cron for times of day")
        else:
            number("every", self.every, 1.0, YEAR)

    def slots(self, after: datetime, until: datetime, most: int = MOST) -> list[datetime]:
        """The slots later than ``after``, up to and including ``until``; only the latest ``most`` of them."""
        if self.cron is None:
            last = (until - EPOCH) // self._period
            first = max((after - EPOCH) // self._period, last - most) + 1
            return [EPOCH + n * self._period for n in range(first, last + 1)]
        span = timedelta(hours=1)
        while True:  # backwards in growing steps: a year of minutes has half a million slots
            since = until - span if until - after > span else after
            found = deque(takewhile(lambda slot: slot <= until, self._from(since)), maxlen=most)
            if len(found) == most or since == after:
                return list(found)
            span *= 8

    def next_slot(self, after: datetime) -> datetime:
        if self.cron is None:
            return EPOCH + ((after - EPOCH) // self._period + 1) * self._period
        return next(self._from(after))

    def due(self, last: datetime, now: datetime) -> list[datetime]:
        """The slots to fire for now, if the one fired for before was ``last``."""
        slots = self.slots(last, now)
        if self.catch_up == "all":
            return slots
        fresh = [slot for slot in slots if now - slot <= MISSED]
        return fresh or (slots[-1:] if self.catch_up == "last" else [])

    @property
    def _period(self) -> timedelta:
        assert self.every is not None
        return timedelta(milliseconds=round(in_seconds(self.every) * 1000))

    def _from(self, after: datetime) -> Iterator[datetime]:
        assert self.cron is not None
        for local in CronSim(_by_the_wall(self.cron), after.astimezone(_zone(self.tz))):
            # An hour that comes twice is passed through once; in its second run the slots are those of the first.
            if (slot := local.astimezone(UTC)) > after:
                yield slot


def _by_the_wall(cron: str) -> str:
    """Let every expression that names hours follow the clock on the wall, where a time comes once a day.

    CronSim does so unless minute or hour begins with a star, as Debian's cron does. By that rule
    ``*/30 2 * * *`` would be left out in spring and come four times in autumn.
    """
    minute, hour, *days = cron.split()
    if hour == "*":
        return cron
    return " ".join([minute.replace("*", "0-59"), hour.replace("*", "0-23"), *days])


def _check_cron(cron: Any, zone: tzinfo) -> None:
    if not isinstance(cron, str) or len(cron) > 200:
        raise ConfigError(f"cron is {shown(cron)}: it must be a text of {FIELDS}")
    if (count := len(cron.split())) != 5:
        hint = "; for seconds use every=" if count == 6 else ""
        fields = "1 field" if count == 1 else f"{count} fields"
        raise ConfigError(f"cron {shown(cron)} has {fields}: it must have {FIELDS}{hint}")
    try:
        simulated = CronSim(_by_the_wall(cron), datetime.now(zone))
    except CronSimError as error:
        raise ConfigError(
            f"cron {shown(cron)} cannot be: {str(error).lower()}; it must have {FIELDS}, each in its range, "
            "and a day that some month has"
        ) from None
    if next(simulated, None) is None:
        raise ConfigError(f"cron {shown(cron)} never fires: choose a day that comes")


def _zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise ConfigError(
            f"time zone {shown(name)} is unknown here: use an IANA name, for example 'Europe/Berlin' "
            "(pip install tzdata where the system has none)"
        ) from None
