"""StoredSchedule: what a store has of a schedule, as a record that workers and interfaces read."""

from __future__ import annotations

from msgspec import Struct, ValidationError, convert, json, structs, to_builtins

from unstuck.config.checks import queue_name
from unstuck.config.timing import CatchUp, Timing
from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.job import Json, NewJob
from unstuck.protocol.records import PAGE, Kept, Record
from unstuck.protocol.store import Store

KIND = "schedule"
LARGEST = (
    16 * 1024
)  # bytes of one that was made at run time: every worker reads all of them every few seconds


class StoredSchedule(Struct, frozen=True, kw_only=True):
    """When to enqueue a job like ``job``, and why it is paused, if it is.

    One that is ``declared`` belongs to the code of workers, which fire it; the record shows it to everybody else. Its job is
    None if it is not known, or too large for a record.
    """

    job: NewJob | None = None
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    catch_up: CatchUp = "last"
    declared: bool = False
    paused: str | None = None

    @property
    def timing(self) -> Timing:
        """Raises ``ConfigError`` for what cannot be, such as a time zone that this host does not have."""
        return Timing(cron=self.cron, every=self.every, tz=self.tz, catch_up=self.catch_up)

    @property
    def timed(self) -> bool:
        """Whether its times are known: a worker that declares it has not published them yet, if not."""
        return self.cron is not None or self.every is not None


def pattern(job: NewJob) -> NewJob:
    """What all jobs of a schedule have in common, with the arguments as plain JSON."""
    payload = json.decode(json.encode(job.payload))
    return structs.replace(job, id="", payload=payload, key=None, again=False, digest=None, trace=None)


def read(record: Record) -> StoredSchedule:
    """Raises ``ConfigError`` if somebody edited the record so that it is no schedule."""
    try:
        found = convert(record.value, StoredSchedule)
        queue_name(record.name, "schedule name")
        if not found.declared and found.job is None:
            raise ConfigError("it has no job")
        if found.job is not None and (found.job.key is not None or found.job.run_at is not None):
            raise ConfigError("its job has a key or run_at, and each slot brings its own")
        if found.timed or not found.declared:
            assert found.timing
    except (ValidationError, ConfigError) as error:
        raise ConfigError(f"its record cannot be used here: {error}") from None
    return found


async def write(store: Store, name: str, schedule: StoredSchedule, version: int) -> Kept:
    """Keep it if its record still has this version, 0 for none; a ``PayloadError`` if it is too large."""
    return await store.keep(KIND, name, as_json(name, schedule), version)


def as_json(name: str, schedule: StoredSchedule) -> Json:
    value = to_builtins(schedule)
    if value["job"] is not None:
        value["job"] = {name: fact for name, fact in value["job"].items() if fact is not None}
    value = {name: fact for name, fact in value.items() if fact is not None}
    size = len(json.encode(value))
    if size > LARGEST:
        raise PayloadError(
            f"schedule {name!r}: {size:,} bytes as JSON, at most {LARGEST:,} are allowed; store its arguments elsewhere and "
            "pass their address",
            size=size,
        )
    return value


async def records(store: Store) -> list[Record]:
    """The records of all schedules, by name."""
    found: list[Record] = []
    while more := await store.kept(KIND, found[-1].name if found else "", PAGE):
        found += more
    return found
