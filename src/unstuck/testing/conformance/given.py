"""Short words for what the tests begin with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import digest, keyed_id, new_id
from unstuck.protocol.job import Category, Failure, Job, NewJob, Ref, Status
from unstuck.protocol.json_text import encode
from unstuck.protocol.leases import Share
from unstuck.protocol.operators import Counts, Filter
from unstuck.protocol.outcome import completed, failed
from unstuck.protocol.store import Store

QUEUE = "q"


def new(queue: str = QUEUE, *, key: str | None = None, payload: Any = None, **facts: Any) -> NewJob:
    id_ = facts.pop("id", None) or (new_id() if key is None else keyed_id(queue, key))
    known = None if key is None else digest("task", encode(payload, "payload"))
    return NewJob(queue=queue, task="task", id=id_, key=key, digest=known, payload=payload, **facts)


async def enqueued(store: Store, count: int = 1, **facts: Any) -> list[Ref]:
    return [answer.ref for answer in await store.enqueue([new(**facts) for _ in range(count)])]


async def leased(
    store: Store, limit: int = 1, *, owner: str = "w", seconds: float = 60.0, queue: str = QUEUE
) -> list[Job]:
    return await store.lease({queue: Share(seconds, limit)}, limit, owner)


async def one_leased(store: Store, *, owner: str = "w", seconds: float = 60.0, **facts: Any) -> Job:
    """A fresh job in the hands of a worker."""
    await enqueued(store, **facts)
    [job] = await leased(store, owner=owner, seconds=seconds)
    return job


async def one_of_each(store: Store) -> dict[Status, str]:
    """One job in each state, by id."""
    await enqueued(store, 3)
    done, dead, running = await leased(store, 3)
    await store.settle([completed(done.lease, 1), failed(dead.lease, trouble())])
    [waiting] = await enqueued(store)
    return {
        Status.PENDING: waiting.id,
        Status.PROCESSING: running.id,
        Status.COMPLETED: done.id,
        Status.FAILED: dead.id,
    }


async def look(store: Store, ref: Ref) -> Job:
    [job] = (await store.find(Filter(ids=(ref.id,), queue=ref.queue))).jobs
    return job


async def counts(store: Store, queue: str = QUEUE) -> Counts:
    return {of.queue: of for of in await store.count()}.get(queue) or Counts(queue=queue)


async def ahead(store: Store, ref: Ref) -> int:
    """How many due jobs stand before a job."""
    found = {of.queue: of for of in await store.count(ref)}.get(ref.queue)
    return found.ahead if found else 0


async def states(store: Store, queue: str = QUEUE) -> dict[str, int]:
    of = await counts(store, queue)
    return {str(status): getattr(of, status) for status in Status if getattr(of, status)}


async def workers_of(store: Store) -> list[WorkerInfo]:
    return (await store.fleet()).workers


def trouble(category: Category = Category.TRANSIENT, **facts: Any) -> Failure:
    return Failure(category=category, code="trouble", message="it did not work", **facts)


def now() -> datetime:
    return datetime.now(UTC)
