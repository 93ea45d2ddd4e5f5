"""Which schedules there are, when they fire, and who fires them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from unstuck.config.checks import shown
from unstuck.config.timing import CatchUp
from unstuck.operations import stored_schedules
from unstuck.operations.explain import unknown
from unstuck.operations.health import alive
from unstuck.operations.stored_schedules import StoredSchedule
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Json
from unstuck.protocol.operators import Finding
from unstuck.protocol.records import Record
from unstuck.protocol.store import Store
from unstuck.text.phrases import ago, command, near

FORGOTTEN = 40 * 86400.0  # seconds after which a schedule that nobody fires was taken out on purpose


class ScheduleStatus(Struct, frozen=True):
    """A schedule as operators see it.

    ``last_slot`` is None until it has fired. ``fired_by`` are the ids of the living workers that fire it: those that declare
    it, and for one that was made at run time (``declared`` is false) all. ``next_slot`` is None while it is paused, with the
    reason in ``paused``. ``version`` changes with every change. ``trouble`` says what keeps it or its jobs from running.
    """

    schedule: str
    last_slot: datetime | None
    fired_by: tuple[str, ...]
    declared: bool = True
    next_slot: datetime | None = None
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    catch_up: CatchUp = "last"
    task: str | None = None
    queue: str | None = None
    arguments: Json = None
    paused: str | None = None
    trouble: str = ""
    version: int = 0
    changed_at: datetime | None = None


async def all_schedules(store: Store) -> list[ScheduleStatus]:
    """Every schedule that ever fired, that a living worker declares or that was made at run time, by name."""
    fleet, now = await store.fleet(), (await store.clock()).now
    return statuses(fleet.slots, alive(fleet.workers, now), await stored_schedules.records(store), now)


async def one_schedule(store: Store, name: str) -> ScheduleStatus:
    """Raises ``ConfigError`` if there is none of this name."""
    for one in await all_schedules(store):
        if one.schedule == name:
            return one
    raise await unknown_schedule(store, name)


async def unknown_schedule(store: Store, name: str) -> ConfigError:
    known = [one.schedule for one in await all_schedules(store)]
    hint = (
        near(str(name), known)
        or f"there are {', '.join(known[:10]) or 'none'}{', …' if len(known) > 10 else ''}"
    )
    return ConfigError(f"no schedule is named {shown(name)} ({hint})")


def statuses(
    slots: Mapping[str, datetime], living: Sequence[WorkerInfo], records: Iterable[Record], now: datetime
) -> list[ScheduleStatus]:
    kept = {record.name: record for record in records}
    names = {*slots, *kept, *(name for worker in living for name in worker.schedules)}
    return [status(name, slots.get(name), living, kept.get(name), now) for name in sorted(names)]


def status(
    name: str, last: datetime | None, living: Sequence[WorkerInfo], record: Record | None, now: datetime
) -> ScheduleStatus:
    found, trouble = StoredSchedule(declared=True), ""
    if record is not None:
        try:
            found = stored_schedules.read(record)
        except ConfigError as error:
            found, trouble = StoredSchedule(), str(error)
    by_all = record is not None and not found.declared
    job = found.job
    return ScheduleStatus(
        schedule=name,
        last_slot=last,
        fired_by=tuple(
            sorted(one.id for one in living if (one.fires_stored if by_all else name in one.schedules))
        ),
        declared=found.declared,
        next_slot=found.timing.next_slot(now) if found.timed and found.paused is None else None,
        cron=found.cron,
        every=found.every,
        tz=found.tz,
        catch_up=found.catch_up,
        task=None if job is None else job.task,
        queue=None if job is None else job.queue,
        arguments=None if job is None else job.payload,
        paused=found.paused,
        trouble=trouble or _without_code(found, living),
        version=0 if record is None else record.version,
        changed_at=None if record is None else record.updated_at,
    )


def _without_code(schedule: StoredSchedule, living: Sequence[WorkerInfo]) -> str:
    """Why the jobs would wait for ever, as far as workers are there."""
    job = schedule.job
    if job is None or not living:
        return ""
    takers = [worker for worker in living if job.queue in worker.queues]
    if not takers:
        return f"No worker takes queue {job.queue!r}."
    if any(job.task in worker.tasks for worker in takers):
        return ""
    return unknown(job.task, job.queue, takers)


def schedule_findings(found: Iterable[ScheduleStatus], now: datetime) -> list[Finding]:
    """What ``doctor`` reports of schedules: those that are paused, that nobody fires, or whose jobs nobody can run."""
    return [finding for one in found if (finding := _finding(one, now)) is not None]


def _finding(one: ScheduleStatus, now: datetime) -> Finding | None:
    name = one.schedule
    if one.paused is not None:
        return Finding(
            "warning",
            f"schedule {name} is paused: {one.paused}",
            f"when it is to fire again: {command('schedules', 'resume', name)}",
        )
    if one.trouble:
        fix = "start a worker that takes the queue and has the task"
        if one.task is None:
            fix = f"{command('schedules', 'delete', name)}, and add it again"
        return Finding("warning", f"schedule {name}: {one.trouble.rstrip('.')}", fix)
    if one.fired_by:
        return None
    if not one.declared:
        text = f"schedule {name} was made at run time, and no worker that is alive fires it"
        return Finding("warning", text, f"start a worker, or: {command('schedules', 'delete', name)}")
    if one.last_slot is None:
        return None
    return Finding(
        "ok" if (now - one.last_slot).total_seconds() > FORGOTTEN else "warning",
        f"schedule {name} came last, or was first seen, {ago(one.last_slot, now)}, and no worker that is alive fires it",
        "start a worker of the app that declares it; if it was taken out of the code: "
        + command("schedules", "delete", name),
    )
