"""Schedule and Scheduler: jobs at set times. Any number of processes may run the same schedules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import json, structs

from unstuck.app.call import Call
from unstuck.config.checks import YEAR, number, queue_name, shown
from unstuck.protocol.errors import ConfigError, StoreError, StoreUnavailable
from unstuck.protocol.ids import digest, keyed_id, slot_key
from unstuck.protocol.job import NewJob
from unstuck.protocol.store import Store
from unstuck.text.durations import Seconds, in_seconds

log = logging.getLogger("unstuck.schedule")

CatchUp = Literal["last", "all", "none"]
MOST = 100  # missed slots that "all" fires for
MISSED = timedelta(seconds=60)  # a slot that is older was missed
LOOK = 30.0  # seconds within which a change of the store's clock is noticed
RETRY = 2.0  # seconds until the next try while the store does not answer
SHORTEST_PAUSE = 0.01
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELDS = "five fields (minute, hour, day of month, month, day of week)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
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
    cron: str | None = None
    every: Seconds | None = None
    tz: str = "UTC"
    catch_up: CatchUp = "last"

    def __post_init__(self) -> None:
        queue_name(self.name, "schedule name")
        what = f"schedule {self.name!r}"
        if not isinstance(self.call, Call):
            raise ConfigError(f"{what} has no call but {shown(self.call)}: give it a task.call(…)")
        if self.call.job.key is not None or self.call.job.run_at is not None:
            raise ConfigError(
                f"{what} has a call with a key or run_at: leave them out, each slot brings its own"
            )
        if (self.cron is None) == (self.every is None):
            raise ConfigError(f"{what} needs either cron or every: for example cron='0 3 * * *' or every=60")
        if self.catch_up not in get_args(CatchUp):
            raise ConfigError(f"catch_up is {shown(self.catch_up)}: it must be 'last', 'all' or 'none'")
        zone = _zone(self.tz)
        if self.cron is not None:
            _check_cron(self.cron, zone)
        elif self.tz != "UTC":
            raise ConfigError(
                f"{what} has every and tz: intervals know no time zone, use cron for times of day"
            )
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

    def job(self, slot: datetime) -> NewJob:
        """The job of a slot; every process gives it the same key and id."""
        job = self.call.job
        key = slot_key(self.name, slot)
        content = digest(job.task, json.encode(job.payload))
        # A slot that comes again, because the clock was put back, starts its finished job over.
        return structs.replace(job, key=key, id=keyed_id(job.queue, key), digest=content, again=True)

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


class Scheduler:
    """Fires schedules, until cancelled. There is no leader: the store lets each slot pass once."""

    def __init__(self, store: Store, schedules: Iterable[Schedule]) -> None:
        self._store = store
        self._schedules = tuple(schedules)
        self._next = {schedule.name: EPOCH for schedule in self._schedules}
        self._looked = EPOCH

    async def run(self) -> None:
        """Look at once and whenever a slot comes. Errors are logged and do not end it."""
        while True:
            try:
                pause = await self.look()
            except StoreError as error:
                log.warning("schedules wait for the store, will try again: %s", error)
                pause = RETRY
            except Exception:
                log.exception("schedules could not be looked at, will try again")
                pause = RETRY
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Fire for all slots that are due by the store's clock; returns the seconds until the next look."""
        began = time.monotonic()
        now = (await self._store.clock()).now
        if now < self._looked:  # the clock was put back: the next slots may be far away now
            self._next = dict.fromkeys(self._next, EPOCH)
        self._looked = now
        pause, last = LOOK, dict[str, datetime]()
        if any(next_ <= now for next_ in self._next.values()):
            last = (await self._store.fleet()).slots
        for schedule in self._schedules:
            due = self._next[schedule.name] <= now
            if due and not await self._try(schedule, last.get(schedule.name), now):
                pause = min(pause, RETRY)
                continue
            pause = min(pause, (self._next[schedule.name] - now).total_seconds())
        return max(SHORTEST_PAUSE, pause - (time.monotonic() - began))

    async def _try(self, schedule: Schedule, last: datetime | None, now: datetime) -> bool:
        """One schedule whose job cannot be stored does not hold up the others."""
        try:
            await self._fire(schedule, last, now)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("schedule %r could not fire, will try again", schedule.name)
            return False
        self._next[schedule.name] = schedule.next_slot(now)
        return True

    async def _fire(self, schedule: Schedule, last: datetime | None, now: datetime) -> None:
        if last is None:  # never seen before: begins now, owes nothing
            await self._store.tick(schedule.name, now, [])
            return
        if last > now + MISSED and schedule.next_slot(now) < last:
            if await self._store.tick(schedule.name, now, [], instead_of=last):
                log.warning(
                    "schedule %r fired for %s, which is yet to come: the clock was put back, and it begins again now",
                    schedule.name,
                    last,
                )
            return
        # One by one and in order: two that look at different times agree on every slot they both see.
        due = schedule.due(last, now)
        for slot in due:
            if not await self._store.tick(schedule.name, slot, [schedule.job(slot)]):
                continue
            if slot == due[0] and schedule.next_slot(last) < slot:
                log.warning(
                    "schedule %r missed its slots from %s to the one before %s: catch_up is %r, so they bring no job",
                    schedule.name,
                    schedule.next_slot(last),
                    slot,
                    schedule.catch_up,
                )
            if now - slot > MISSED:
                log.info("schedule %r fired late, for %s", schedule.name, slot)


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
