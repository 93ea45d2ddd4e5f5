"""Enqueue on a connection that is somebody else's, inside of the transaction that is open there.

It is used, never committed, rolled back or closed. Errors leave as its own driver raises them, because whoever began
the transaction knows those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from unstuck.errors import SchemaError
from unstuck.model import NewJob
from unstuck.store import Enqueued
from unstuck.stores.postgres import steps
from unstuck.stores.postgres.bell import Throttle
from unstuck.stores.postgres.guests import async_guest, sync_guest
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import soon

_NOT_THERE = {"42P01", "3F000"}  # undefined_table, invalid_schema_name
# One for each store in this process: those of all event loops and threads ring for the same workers.
_throttles: dict[Place, Throttle] = {}


async def enqueue_in(
    connection: Any, jobs: Sequence[NewJob], place: Place, sql: Mapping[str, str]
) -> list[Enqueued]:
    guest = async_guest(connection)
    if not jobs:
        return []
    step = steps.enqueue(jobs, _ring(jobs, place), place)
    with _plainly(place):
        async with guest.whole() if any(job.again for job in jobs) else nullcontext():
            try:
                query = next(step)
                while True:
                    query = step.send(await guest.ask(sql[query.name], query.params))
            except StopIteration as done:
                answers: list[Enqueued] = done.value
                return answers


def enqueue_in_sync(
    connection: Any, jobs: Sequence[NewJob], place: Place, sql: Mapping[str, str]
) -> list[Enqueued]:
    guest = sync_guest(connection)
    if not jobs:
        return []
    step = steps.enqueue(jobs, _ring(jobs, place), place)
    with _plainly(place), guest.whole() if any(job.again for job in jobs) else nullcontext():
        try:
            query = next(step)
            while True:
                query = step.send(guest.ask(sql[query.name], query.params))
        except StopIteration as done:
            answers: list[Enqueued] = done.value
            return answers


def _ring(jobs: Sequence[NewJob], place: Place) -> list[str]:
    """The server passes a ring on when the transaction commits, and forgets it when that is rolled back."""
    return _throttles.setdefault(place, Throttle()).ring(soon(jobs))


@contextmanager
def _plainly(place: Place) -> Iterator[None]:
    """The one mistake that the driver's words do not explain: a connection to another database."""
    try:
        yield
    except Exception as error:
        if _NOT_THERE.isdisjoint(_states(error)):
            raise
        raise SchemaError(
            f"the database of this connection has no jobs in schema {place.schema!r}: use a connection to the "
            "database that the store is in"
        ) from error


def _states(error: BaseException) -> set[Any]:
    """What the server called the error, as the drivers and those who wrap their errors carry it."""
    layers = (error, error.__cause__)
    return {getattr(layer, name, None) for layer in layers for name in ("sqlstate", "pgcode")}
