"""The operations of operators: listing, counting, and changing jobs by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from unstuck.protocol.fleet import Fleet
from unstuck.protocol.job import Job, Ref
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.stores.redis import bullmq_options, iterations, rows
from unstuck.stores.redis.client import Queues, RedisClient
from unstuck.stores.shared import listing
from unstuck.stores.shared.events import CANCELLED, COUNTED_PLACES, MOST_BROKEN, broken, edited
from unstuck.stores.shared.values import at, instant, json_text, worker

# A job and the numbers that are its position in a listing; only a Ref if just the job's entry is left.
Found = tuple[Job | Ref, tuple[int, ...]]
_GONE = "only its entry is left: its data was evicted or deleted"


async def find(
    client: RedisClient, names: Sequence[str], which: Filter, limit: int, cursor: str | None
) -> list[Found]:
    """The first jobs of a listing after the cursor."""
    number = at = None
    if cursor is not None:
        *end, number = listing.cursor_numbers(cursor, which)
        at = end[0] if end else None
    found = await client.run("find", names, which=rows.which(which), limit=limit, number=number, at=at)
    by_finish = listing.by_finish(which)
    return [
        (rows.shown(names[row[0] - 1], row), (int(end), int(born)) if by_finish else (int(born),))
        for row, born, end in found
    ]


def page(found: Sequence[Found], which: Filter, limit: int) -> Page:
    gone = [(job, _GONE) for job, _ in found if isinstance(job, Ref)]
    jobs = [job for job, _ in found if isinstance(job, Job)]
    jobs = listing.readable(which, jobs, gone, fix="enqueue it again")
    return Page(jobs, None if len(found) < limit else ".".join(str(number) for number in found[-1][1]))


async def finished(client: RedisClient, names: Sequence[str], name: str, which: Filter, limit: int) -> int:
    """Requeue or delete finished jobs."""
    if which.ids == () or which.status in ("pending", "processing"):
        return 0
    return int(await client.run(name, names, which=rows.which(which), limit=limit))


async def count(client: RedisClient, names: Sequence[str], ahead_of: Ref | None) -> list[Counts]:
    answers = await client.run("count", names, ahead_of=list(ahead_of or ()), bound=COUNTED_PLACES)
    found = (rows.counts(name, row) for name, row in zip(names, answers, strict=True))
    return [counts for counts in found if counts is not None]


async def broken_rules(client: RedisClient, names: Sequence[str]) -> list[Finding]:
    found = await client.run("verify", names, limit=MOST_BROKEN)
    return [broken(*map(bytes.decode, row)) for row in found]


async def fleet(client: RedisClient) -> Fleet:
    own = client.address.own
    seen, since, facts, slots = await client.together(
        [
            ["ZREVRANGE", own("seen"), 0, -1, "WITHSCORES"],
            ["HGETALL", own("since")],
            ["HGETALL", own("workers")],
            ["HGETALL", own("slots")],
        ]
    )
    began, known = dict(_pairs(since)), dict(_pairs(facts))
    workers = [
        worker(known[id_], at(began.get(id_, score)), at(score))
        for id_, score in _pairs(seen)
        if id_ in known
    ]
    return Fleet(workers, {name.decode(): at(slot) for name, slot in sorted(_pairs(slots))})


async def events(client: RedisClient, names: Sequence[str], behind: int, limit: int) -> list[Event]:
    """Events of all queues, read at the same moment, because otherwise one could be skipped."""
    if not names:
        return []
    keys = [client.address.of(name, "unstuck:events") for name in names]
    answers = await client.together(
        [["ZRANGEBYSCORE", key, f"({behind}", "+inf", "LIMIT", 0, limit] for key in keys]
    )
    found = [rows.event(name, text) for name, texts in zip(names, answers, strict=True) for text in texts]
    return sorted(found, key=lambda event: int(event.cursor))[:limit]


async def job_events(client: RedisClient, job: Ref, behind: int, limit: int) -> list[Event]:
    numbers = (await client.ask("HGET", client.address.of(*job), "told") or b"").split()
    later = [number for number in numbers if int(number) > behind][:limit]
    if not later:
        return []
    key = client.address.of(job.queue, "unstuck:events")
    answers = await client.together(
        [["ZRANGEBYSCORE", key, number, number] for number in map(bytes.decode, later)], job.queue
    )
    return [rows.event(job.queue, text) for texts in answers for text in texts]


async def cancel(client: RedisClient, refs: Sequence[Ref]) -> int:
    await iterations.ensure(client, refs)
    queues = Queues()
    facts = {"error": json_text(CANCELLED), "message": CANCELLED.message}
    return int(await client.run("cancel", queues, refs=_refs(refs, queues), **facts))


async def edit(
    client: RedisClient, refs: Sequence[Ref], priority: int | None, run_at: datetime | None
) -> int:
    queues = Queues()
    facts: dict[str, Any] = {
        "priority": None if priority is None else bullmq_options.their_priority(priority),
        "run_at": None if run_at is None else instant(run_at),
        "details": json_text(edited(priority, run_at)),
    }
    return int(await client.run("edit", queues, refs=_refs(refs, queues), **facts))


async def queues(client: RedisClient, which: Filter) -> list[str]:
    """The queues that a filter may select jobs of."""
    return await client.queues() if which.queue is None else [which.queue]


def _refs(refs: Sequence[Ref], queues: Queues) -> list[list[Any]]:
    return [[queues[ref.queue], ref.id] for ref in refs]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
