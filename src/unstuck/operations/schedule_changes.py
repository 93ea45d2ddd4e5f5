"""ScheduleChanges: the methods of Jobs that make, change, pause, run and delete schedules while workers run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from unstuck.config.checks import queue_name, shown, whole
from unstuck.config.job_options import Options
from unstuck.config.retry import Retry
from unstuck.config.timing import CatchUp, Timing
from unstuck.operations import stored_schedules
from unstuck.operations.health import alive
from unstuck.operations.new_job import RegisteredTask, job_by_name, job_of_slot
from unstuck.operations.schedules import ScheduleStatus, all_schedules, one_schedule, unknown_schedule
from unstuck.operations.stored_schedules import KIND, StoredSchedule, pattern
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Enqueued, Json
from unstuck.protocol.records import Record
from unstuck.protocol.store import Store
from unstuck.text.durations import Seconds, in_seconds

MOST = 1000  # schedules of a store: every worker reads all of them every few seconds
TRIES = 20  # of a change, while others change the same schedule


class _Present(NamedTuple):
    """A schedule as it is now: its record, if it has one, and whether living workers declare it."""

    record: Record | None
    found: StoredSchedule
    declared: bool

    @property
    def version(self) -> int:
        return 0 if self.record is None else self.record.version


class ScheduleChanges:
    """A schedule has one record. Code that declares it owns its times and its job; operators pause, resume and run it."""

    _store: Store
    _tasks: Mapping[str, RegisteredTask]

    async def schedules(self) -> list[ScheduleStatus]:
        """Every schedule that ever fired, that a living worker declares or that was made at run time, by name."""
        return await all_schedules(self._store)

    async def schedule(self, name: str) -> ScheduleStatus:
        """One of them, by its name."""
        return await one_schedule(self._store, name)

    async def add_schedule(
        self,
        name: str,
        task: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "last",
        queue: str | None = None,
        retry: Retry | int | None = None,
        priority: int = 0,
        delay: Seconds = 0.0,
        lane: str | None = None,
    ) -> ScheduleStatus:
        """Make a schedule that every worker of the store fires within 5 seconds, beside those that their code declares.

        ``await jobs.add_schedule("daily", "report", {"kind": "daily"}, cron="0 3 * * *", tz="Europe/Berlin")``

        The times are those of a :class:`Schedule`, task and arguments as ``enqueue_task`` takes them. It begins with its next
        slot. A schedule of this name that exists is refused.
        """
        queue_name(name, "schedule name")
        timing = _timing(name, cron, every, tz, catch_up)
        options = Options(priority=priority, delay=in_seconds(delay), lane=lane)
        job = job_by_name(
            self._tasks, task, {} if arguments is None else arguments, options, queue=queue, retry=retry
        )
        names = [one.schedule for one in await all_schedules(self._store)]
        if name in names:
            raise ConfigError(
                f"schedule {name!r} exists already: change or delete it, or choose another name"
            )
        if len(names) >= MOST:
            raise ConfigError(
                f"the store has {len(names)} schedules, at most {MOST} are allowed: delete some"
            )
        made = _with(StoredSchedule(job=pattern(job)), timing)
        await self._begin_now(name, made)
        kept = await stored_schedules.write(self._store, name, made, 0)
        if not kept.applied:
            raise ConfigError(f"schedule {name!r} exists already: somebody made it at the same moment")
        return await one_schedule(self._store, name)

    async def change_schedule(
        self,
        name: str,
        *,
        arguments: Mapping[str, Json] | None = None,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str | None = None,
        catch_up: CatchUp | None = None,
        queue: str | None = None,
        priority: int | None = None,
        version: int | None = None,
    ) -> ScheduleStatus:
        """Change what is given of a schedule that was made at run time. New times begin with their next slot.

        With the ``version`` that the caller has seen, a schedule that somebody else changed since is left alone:
        that is a ``ConfigError``.
        """
        for _ in range(TRIES):
            present = await self._stored(name, "changed", version)
            old = present.found
            assert old.job is not None
            timing = _timing(
                name,
                cron if cron is not None or every is not None else old.cron,
                every if cron is not None or every is not None else old.every,
                _zone_of(old, tz, cron, every),
                old.catch_up if catch_up is None else catch_up,
            )
            job = old.job
            if arguments is not None or queue is not None:
                registered = job.task in self._tasks
                checked = job_by_name(
                    self._tasks,
                    job.task,
                    job.payload if arguments is None else arguments,
                    Options(),
                    queue=job.queue if queue is None and not registered else queue,
                )
                job = structs.replace(job, payload=pattern(checked).payload, queue=queue or job.queue)
            if priority is not None:
                job = structs.replace(job, priority=whole("priority", priority, 0, 9))
            new = _with(structs.replace(old, job=job), timing)
            if (new.cron, new.every, new.tz) != (old.cron, old.every, old.tz):
                await self._begin_now(name, new)
            if (await stored_schedules.write(self._store, name, new, present.version)).applied:
                return await one_schedule(self._store, name)
        raise _too_busy(name)

    async def pause_schedule(self, name: str, why: str = "paused by hand") -> None:
        """Let no slot of a schedule fire that comes after this call, also if code declares it. Its jobs stay.

        When it is resumed, the slots that came meanwhile are missed ones: its ``catch_up`` decides about them.
        """
        for _ in range(TRIES):
            present = await self._present(name)
            paused = structs.replace(present.found, paused=_reason(why))
            if (await stored_schedules.write(self._store, name, paused, present.version)).applied:
                return
        raise _too_busy(name)

    async def resume_schedule(self, name: str) -> bool:
        """Let a schedule fire again; false if it was not paused."""
        for _ in range(TRIES):
            present = await self._present(name)
            if present.found.paused is None:
                return False
            resumed = structs.replace(present.found, paused=None)
            if (await stored_schedules.write(self._store, name, resumed, present.version)).applied:
                return True
        raise _too_busy(name)

    async def run_schedule(self, name: str) -> Enqueued:
        """Enqueue a job of a schedule now, beside those of its slots, also while it is paused.

        The job's ``slot`` is the present time.
        """
        present = await self._present(name)
        if (job := present.found.job) is None:
            raise ConfigError(
                f"schedule {name!r} is declared in code, and the store does not have its job, because no worker has stored it "
                "yet or its arguments are too large: enqueue its task"
            )
        now = (await self._store.clock()).now
        [enqueued] = await self._store.enqueue([job_of_slot(job, name, now)])
        return enqueued

    async def delete_schedule(self, name: str, *, version: int | None = None) -> None:
        """Delete a schedule that was made at run time, or one that no living worker declares any more. Its jobs stay.

        None of its slots that comes after this call fires.
        """
        for _ in range(TRIES):
            present = await self._stored(name, "deleted", version)
            if (await self._store.keep(KIND, name, None, present.version)).applied:
                await self._store.tick(name, None, [])
                return
        raise _too_busy(name)

    async def _present(self, name: str) -> _Present:
        """A schedule as it is now; a ``ConfigError`` if there is none of this name."""
        queue_name(name, "schedule name")
        record = (await self._store.keep(KIND, name, None)).record
        fleet, now = await self._store.fleet(), (await self._store.clock()).now
        declared = any(name in worker.schedules for worker in alive(fleet.workers, now))
        if record is None:
            if not declared and name not in fleet.slots:
                raise await unknown_schedule(self._store, name)
            return _Present(None, StoredSchedule(declared=True), declared)
        try:
            return _Present(record, stored_schedules.read(record), declared)
        except ConfigError as error:
            raise ConfigError(f"schedule {name!r}: {error}; delete it, and add it again") from None

    async def _stored(self, name: str, done: str, version: int | None) -> _Present:
        """The same, for a change that only what no code declares can undergo."""
        try:
            present = await self._present(name)
        except ConfigError:
            record = (await self._store.keep(KIND, name, None)).record
            if done != "deleted" or record is None:
                raise
            present = _Present(record, StoredSchedule(), declared=False)  # it cannot be read, but can go
        if present.declared or (present.found.declared and done != "deleted"):
            raise ConfigError(
                f"schedule {name!r} is declared in code, so it cannot be {done} here: change the code; to stop it now, pause it"
            )
        if version is not None and version != present.version:
            raise ConfigError(
                f"schedule {name!r} has version {present.version}, not {shown(version)}: somebody changed it; look at it again"
            )
        return present

    async def _begin_now(self, name: str, schedule: StoredSchedule) -> None:
        """Slots up to now are none that were missed. Before the record is there, or a scheduler would catch up with them."""
        stored_schedules.as_json(name, schedule)  # one that is too large changes nothing
        await self._store.tick(name, (await self._store.clock()).now, [])


def _timing(name: str, cron: str | None, every: Seconds | None, tz: str, catch_up: CatchUp) -> Timing:
    try:
        return Timing(cron=cron, every=every, tz=tz, catch_up=catch_up)
    except ConfigError as error:
        raise ConfigError(f"schedule {name!r}: {error}") from None


def _zone_of(old: StoredSchedule, tz: str | None, cron: str | None, every: Seconds | None) -> str:
    """An interval has no time zone: it does not inherit that of the expression before it."""
    if tz is not None:
        return tz
    return "UTC" if every is not None and cron is None else old.tz


def _with(schedule: StoredSchedule, timing: Timing) -> StoredSchedule:
    every = None if timing.every is None else in_seconds(timing.every)
    return structs.replace(schedule, cron=timing.cron, every=every, tz=timing.tz, catch_up=timing.catch_up)


def _reason(why: str) -> str:
    if not isinstance(why, str) or not 1 <= len(why) <= 500:
        raise ConfigError(f"why is {shown(why)}: it must be a text of 1 to 500 characters")
    return why


def _too_busy(name: str) -> ConfigError:
    return ConfigError(f"schedule {name!r} is being changed by others all the time: try again")
