"""What operators do and see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from unstuck.model import Event, Filter, Job, Ref, Worker
from unstuck.store import Counts, Page
from unstuck.stores import listing
from unstuck.stores.redis import options, rows
from unstuck.stores.redis.lines import Lines, Queues
from unstuck.stores.telling import CANCELLED, MOST_BROKEN, broken, edited
from unstuck.stores.values import at, instant, json_text, worker

# With the numbers that are its place in a listing. A job of which only the entry is left has no more than a name.
Found = tuple[Job | Ref, tuple[int, ...]]
_GONE = "only its entry is left: its data was evicted or deleted"


async def find(
    lines: Lines, names: Sequence[str], which: Filter, limit: int, cursor: str | None
) -> list[Found]:
    """The first jobs of a listing, as it goes on behind the cursor."""
    number = at = None
    if cursor is not None:
        *end, number = listing.place(cursor, which)
        at = end[0] if end else None
    found = await lines.run("find", names, which=rows.which(which), limit=limit, number=number, at=at)
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


async def finished(lines: Lines, names: Sequence[str], name: str, which: Filter, limit: int) -> int:
    """Requeue or delete finished jobs."""
    if which.ids == () or which.status in ("pending", "processing"):
        return 0
    return int(await lines.run(name, names, which=rows.which(which), limit=limit))


async def count(lines: Lines, names: Sequence[str]) -> list[Counts]:
    answers = await lines.run("count", names)
    found = (rows.counts(name, row) for name, row in zip(names, answers, strict=True))
    return [counts for counts in found if counts is not None]


async def verify(lines: Lines, names: Sequence[str]) -> list[str]:
    found = await lines.run("verify", names, limit=MOST_BROKEN)
    return [broken(*map(bytes.decode, row)) for row in found]


async def workers(lines: Lines) -> list[Worker]:
    own = lines.place.own
    seen, since, facts = await lines.together(
        [
            ["ZREVRANGE", own("seen"), 0, -1, "WITHSCORES"],
            ["HGETALL", own("since")],
            ["HGETALL", own("workers")],
        ]
    )
    began, known = dict(_pairs(since)), dict(_pairs(facts))
    return [
        worker(known[id_], at(began.get(id_, score)), at(score))
        for id_, score in _pairs(seen)
        if id_ in known
    ]


async def slots(lines: Lines) -> dict[str, datetime]:
    found = await lines.ask("HGETALL", lines.place.own("slots"))
    return {name.decode(): at(slot) for name, slot in sorted(_pairs(found))}


async def events(lines: Lines, names: Sequence[str], behind: int, limit: int) -> list[Event]:
    """Those of all queues, read in the same moment, or one of them would be passed by."""
    if not names:
        return []
    keys = [lines.place.of(name, "unstuck:events") for name in names]
    answers = await lines.together(
        [["ZRANGEBYSCORE", key, f"({behind}", "+inf", "LIMIT", 0, limit] for key in keys]
    )
    found = [rows.event(name, text) for name, texts in zip(names, answers, strict=True) for text in texts]
    return sorted(found, key=lambda event: int(event.cursor))[:limit]


async def job_events(lines: Lines, job: Ref, behind: int, limit: int) -> list[Event]:
    numbers = (await lines.ask("HGET", lines.place.of(*job), "told") or b"").split()
    later = [number for number in numbers if int(number) > behind][:limit]
    if not later:
        return []
    key = lines.place.of(job.queue, "unstuck:events")
    answers = await lines.together(
        [["ZRANGEBYSCORE", key, number, number] for number in map(bytes.decode, later)], job.queue
    )
    return [rows.event(job.queue, text) for texts in answers for text in texts]


async def cancel(lines: Lines, refs: Sequence[Ref]) -> int:
    queues = Queues()
    facts = {"error": json_text(CANCELLED), "message": CANCELLED.message}
    return int(await lines.run("cancel", queues, refs=_refs(refs, queues), **facts))


async def edit(lines: Lines, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    queues = Queues()
    facts: dict[str, Any] = {
        "priority": None if priority is None else options.their_priority(priority),
        "run_at": None if run_at is None else instant(run_at),
        "details": json_text(edited(priority, run_at)),
    }
    return int(await lines.run("edit", queues, refs=_refs(refs, queues), **facts))


async def queues(lines: Lines, which: Filter) -> list[str]:
    """Those that a filter may mean jobs of."""
    return await lines.queues() if which.queue is None else [which.queue]


def _refs(refs: Sequence[Ref], queues: Queues) -> list[list[Any]]:
    return [[queues[ref.queue], ref.id] for ref in refs]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
