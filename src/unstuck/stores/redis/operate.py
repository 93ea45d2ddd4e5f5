"""What operators do and see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from unstuck.model import Event, Filter, Ref, Worker
from unstuck.store import Counts, Page
from unstuck.stores import listing
from unstuck.stores.redis import rows
from unstuck.stores.redis.lines import Lines, Queues
from unstuck.stores.telling import CANCELLED, MOST_BROKEN


async def find(lines: Lines, which: Filter, limit: int, cursor: str | None) -> Page:
    number = at = None
    if cursor is not None:
        *end, number = listing.place(cursor, which)
        at = end[0] if end else None
    names = await _queues(lines, which)
    found = await lines.run("find", names, which=rows.which(which), limit=limit, number=number, at=at)
    jobs = [rows.shown(names[row[0] - 1], row) for row, _, _ in found]
    if len(found) < limit:
        return Page(jobs, None)
    _, last, ended = found[-1]
    return Page(jobs, f"{int(ended)}.{int(last)}" if listing.by_finish(which) else f"{int(last)}")


async def finished(lines: Lines, name: str, which: Filter, limit: int) -> int:
    """Requeue or delete finished jobs."""
    if which.ids == () or which.status in ("pending", "processing"):
        return 0
    return int(await lines.run(name, await _queues(lines, which), which=rows.which(which), limit=limit))


async def count(lines: Lines) -> list[Counts]:
    names = await lines.queues()
    answers = await lines.run("count", names)
    found = (rows.counts(name, row) for name, row in zip(names, answers, strict=True))
    return [counts for counts in found if counts is not None]


async def verify(lines: Lines) -> list[str]:
    found = await lines.run("verify", await lines.queues(), limit=MOST_BROKEN)
    return [f"{rule.decode()}: job {id_.decode()} of queue {queue.decode()}" for rule, queue, id_ in found]


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
        rows.worker(known[id_], began.get(id_), float(score)) for id_, score in _pairs(seen) if id_ in known
    ]


async def events(lines: Lines, behind: int, limit: int) -> list[Event]:
    """Those of all queues, read in the same moment, or one of them would be passed by."""
    if not (names := await lines.queues()):
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
        [["ZRANGEBYSCORE", key, number, number] for number in map(bytes.decode, later)]
    )
    return [rows.event(job.queue, text) for texts in answers for text in texts]


async def cancel(lines: Lines, refs: Sequence[Ref]) -> int:
    queues = Queues()
    facts = {"error": rows.json_text(CANCELLED), "message": CANCELLED.message}
    return int(await lines.run("cancel", queues, refs=_refs(refs, queues), **facts))


async def edit(lines: Lines, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    queues = Queues()
    changed = {"priority": priority, "run_at": run_at}
    facts: dict[str, Any] = {
        "priority": None if priority is None else rows.their_priority(priority),
        "run_at": None if run_at is None else rows.instant(run_at),
        "details": rows.json_text({name: value for name, value in changed.items() if value is not None}),
    }
    return int(await lines.run("edit", queues, refs=_refs(refs, queues), **facts))


async def _queues(lines: Lines, which: Filter) -> list[str]:
    return await lines.queues() if which.queue is None else [which.queue]


def _refs(refs: Sequence[Ref], queues: Queues) -> list[list[Any]]:
    return [[queues[ref.queue], ref.id] for ref in refs]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
