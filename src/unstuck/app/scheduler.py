"""Scheduler: fires the schedules of the code and those made at run time. Any number of processes may run it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import structs

from unstuck.app.call import Call
from unstuck.app.schedule import Schedule
from unstuck.config.timing import EPOCH, MISSED
from unstuck.operations import stored_schedules
from unstuck.operations.stored_schedules import StoredSchedule, pattern
from unstuck.protocol.errors import ConfigError, PayloadError, StoreError, StoreUnavailable
from unstuck.protocol.records import Record
from unstuck.protocol.store import Store
from unstuck.text.durations import in_seconds

log = logging.getLogger("unstuck.schedule")

LOOK = (
    4.0  # seconds within which a schedule that was made or changed is seen, and a change of the store's clock
)
RETRY = 2.0  # seconds until the next try while the store does not answer
SHORTEST_PAUSE = 0.01


class Scheduler:
    """Fires schedules, until cancelled: these, and all that were made at run time.

    There is no leader: the store lets each slot pass once.
    """

    def __init__(self, store: Store, schedules: Iterable[Schedule] = ()) -> None:
        self._store = store
        self._declared = {schedule.name: schedule for schedule in schedules}
        self._unpublished = set(self._declared)
        self._stored: dict[tuple[str, int], Schedule | None] = {}  # by name and version
        self._next: dict[tuple[str, int], datetime] = {}  # the same; the version of a declared one is 0
        self._looked = EPOCH

    async def run(self) -> None:
        """Look at once, whenever a slot comes and every few seconds. Errors are logged and do not end it."""
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
        # After the clock: a change that was made before a slot came holds for that slot, however long we take.
        records = {record.name: record for record in await stored_schedules.records(self._store)}
        if now < self._looked:  # the clock was put back: the next slots may be far away now
            self._next.clear()
        self._looked = now
        await self._publish(records)
        schedules = self._unpaused(records)
        self._next = {which: self._next.get(which, EPOCH) for which in schedules}
        pause, last = LOOK, dict[str, datetime]()
        if any(next_ <= now for next_ in self._next.values()):
            last = (await self._store.fleet()).slots
        for which, schedule in schedules.items():
            if self._next[which] <= now:
                if not await self._try(schedule, last.get(schedule.name), now):
                    pause = min(pause, RETRY)
                    continue
                self._next[which] = schedule.next_slot(now)
            pause = min(pause, (self._next[which] - now).total_seconds())
        return max(SHORTEST_PAUSE, pause - (time.monotonic() - began))

    def _unpaused(self, records: Mapping[str, Record]) -> dict[tuple[str, int], Schedule]:
        """What is to be fired here: the code's own schedules, then the stored ones that no code declares."""
        found = {
            (name, 0): schedule
            for name, schedule in self._declared.items()
            if name not in records or not _paused(records[name])
        }
        stored = {
            (name, record.version): record for name, record in records.items() if name not in self._declared
        }
        self._stored = {
            which: self._stored[which] if which in self._stored else _to_fire(record)
            for which, record in stored.items()
        }
        return found | {which: schedule for which, schedule in self._stored.items() if schedule}

    async def _publish(self, records: Mapping[str, Record]) -> None:
        """Show the declared schedules to everybody else, once in the life of a process."""
        for name in sorted(self._unpublished):
            try:
                if await self._show(self._declared[name], records.get(name)):
                    self._unpublished.discard(name)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("schedule %r could not be written down for interfaces", name)
                self._unpublished.discard(name)

    async def _show(self, schedule: Schedule, record: Record | None) -> bool:
        """False if somebody else changed the record meanwhile."""
        before = None if record is None else _found(record)
        shown = StoredSchedule(
            job=pattern(schedule.call.job),
            cron=schedule.cron,
            every=None if schedule.every is None else in_seconds(schedule.every),
            tz=schedule.tz,
            catch_up=schedule.catch_up,
            declared=True,
            paused=None if before is None else before.paused,
        )
        if shown == before:
            return True
        if before and not before.declared:
            log.warning(
                "schedule %r is declared in the code now, which replaces the one made at run time",
                schedule.name,
            )
        version = 0 if record is None else record.version
        try:
            return (await stored_schedules.write(self._store, schedule.name, shown, version)).applied
        except PayloadError:  # it is fired all the same
            shown = structs.replace(shown, job=None)
            return (
                shown == before
                or (await stored_schedules.write(self._store, schedule.name, shown, version)).applied
            )

    async def _try(self, schedule: Schedule, last: datetime | None, now: datetime) -> bool:
        """One schedule whose job cannot be stored does not hold up the others."""
        try:
            await self._fire(schedule, last, now)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("schedule %r could not fire, will try again", schedule.name)
            return False
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


def _found(record: Record) -> StoredSchedule | None:
    """The schedule of a record; None, and a line in the log, if it cannot be read here."""
    try:
        return stored_schedules.read(record)
    except ConfigError as error:
        log.warning("schedule %r: %s", record.name, error)
        return None


def _paused(record: Record) -> bool:
    found = _found(record)
    return found is not None and found.paused is not None


def _to_fire(record: Record) -> Schedule | None:
    """The schedule of a record, if any worker is to fire it now."""
    found = _found(record)
    if found is None or found.declared or found.paused is not None or found.job is None:
        return None
    return Schedule(
        name=record.name,
        call=Call(found.job),
        cron=found.cron,
        every=found.every,
        tz=found.tz,
        catch_up=found.catch_up,
    )
