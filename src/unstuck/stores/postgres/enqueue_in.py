"""Enqueue on a connection of the caller, inside the transaction that is open there.

The connection is used, never committed, rolled back or closed. Errors are raised as its own driver raises them, because
the code that began the transaction knows those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from unstuck.protocol.errors import SchemaError
from unstuck.protocol.job import Enqueued, NewJob
from unstuck.stores.postgres import steps
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.caller_connections import async_caller, sync_caller
from unstuck.stores.postgres.rows import soon
from unstuck.stores.postgres.wakeup import Throttle

_NOT_THERE = {"42P01", "3F000"}  # undefined_table, invalid_schema_name
# One for each store in this process: those of all event loops and threads notify the same workers.
_throttles: dict[Address, Throttle] = {}


async def enqueue_in(
    connection: Any, jobs: Sequence[NewJob], address: Address, sql: Mapping[str, str]
) -> list[Enqueued]:
    caller = async_caller(connection)
    if not jobs:
        return []
    step = steps.enqueue(jobs, _to_notify(jobs, address), address)
    with _explaining(address):
        async with caller.whole() if any(job.again or job.interval for job in jobs) else nullcontext():
            try:
                query = next(step)
                while True:
                    query = step.send(await caller.ask(sql[query.name], query.params))
            except StopIteration as done:
                answers: list[Enqueued] = done.value
                return answers


def enqueue_in_sync(
    connection: Any, jobs: Sequence[NewJob], address: Address, sql: Mapping[str, str]
) -> list[Enqueued]:
    caller = sync_caller(connection)
    if not jobs:
        return []
    step = steps.enqueue(jobs, _to_notify(jobs, address), address)
    with (
        _explaining(address),
        caller.whole() if any(job.again or job.interval for job in jobs) else nullcontext(),
    ):
        try:
            query = next(step)
            while True:
                query = step.send(caller.ask(sql[query.name], query.params))
        except StopIteration as done:
            answers: list[Enqueued] = done.value
            return answers


def _to_notify(jobs: Sequence[NewJob], address: Address) -> list[str]:
    """The queues to notify. The server delivers a notification when the transaction commits, and drops it on rollback."""
    return _throttles.setdefault(address, Throttle()).due(soon(jobs))


@contextmanager
def _explaining(address: Address) -> Iterator[None]:
    """Explains the one mistake that the driver's message does not: a connection to another database."""
    try:
        yield
    except Exception as error:
        if _NOT_THERE.isdisjoint(_states(error)):
            raise
        raise SchemaError(
            f"the database of this connection has no jobs in schema {address.schema!r}: use a connection to the "
            "database that the store is in"
        ) from error


def _states(error: BaseException) -> set[Any]:
    """The server's code for the error, as drivers and libraries that wrap their errors carry it."""
    layers = (error, error.__cause__)
    return {getattr(layer, name, None) for layer in layers for name in ("sqlstate", "pgcode")}
