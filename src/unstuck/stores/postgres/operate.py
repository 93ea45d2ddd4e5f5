"""What operators do and see. ``sql`` are the texts of this folder, made out for the schema of ``place``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from unstuck.model import Event, Filter, Ref, Worker
from unstuck.store import Counts, Page
from unstuck.stores.counting import by_kind, counts
from unstuck.stores.listing import behind, by_finish, readable
from unstuck.stores.postgres import rows
from unstuck.stores.postgres.desk import Desk
from unstuck.stores.postgres.filters import listing, matching
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import Params, Query, Row, json_text
from unstuck.stores.telling import CANCELLED, COUNTED_PLACES, MOST_BROKEN, broken, edited
from unstuck.stores.values import worker
from unstuck.tokens import Bucket

Texts = Mapping[str, str]


async def find(desk: Desk, sql: Texts, place: Place, which: Filter, limit: int, cursor: str | None) -> Page:
    text, params = listing(sql["find"], which, cursor)
    found = await _complete(desk, place, text, params | {"limit": limit})
    read = rows.each(text for _, _, text in found)
    jobs = readable(which, read.jobs, [(ref, why) for ref, _, why in read.unreadable])
    if len(found) < limit:
        return Page(jobs, None)
    seq, finished, _ = found[-1]
    return Page(jobs, f"{finished}.{seq}" if by_finish(which) else str(seq))


async def count(desk: Desk) -> list[Counts]:
    kinds, totals, paused = await desk.snapshot(
        Query("count", {}), Query("counters", {}), Query("queues", {})
    )
    return counts(by_kind(kinds), totals, paused)


async def verify(desk: Desk) -> list[str]:
    [found] = await desk.alone(Query("verify", {"limit": MOST_BROKEN}), patience=None)
    return [broken(*row) for row in found]


async def workers(desk: Desk) -> list[Worker]:
    return [worker(facts, started, seen) for started, seen, facts in await desk.one("workers")]


async def events(desk: Desk, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    asked = {"after": behind(after), "limit": limit}
    if job is None:
        found = await desk.one("events", **asked)
    else:
        found = await desk.one("job_events", id=job.id, queue=job.queue, **asked)
    return [rows.event(row) for row in found]


async def requeue(desk: Desk, sql: Texts, place: Place, which: Filter, limit: int) -> int:
    return await _finished(desk, sql["requeue"], place, which, limit, channel=place.channel)


async def delete(desk: Desk, sql: Texts, place: Place, which: Filter, limit: int) -> int:
    return await _finished(desk, sql["delete"], place, which, limit)


async def cancel(desk: Desk, refs: Sequence[Ref]) -> int:
    facts = {"error": json_text(CANCELLED), "code": CANCELLED.code}
    [found] = await desk.one("cancel", **facts, **rows.refs(refs))
    return int(found[0])


async def edit(
    desk: Desk, place: Place, refs: Sequence[Ref], priority: int | None, run_at: datetime | None
) -> int:
    facts = {"priority": priority, "run_at": run_at, "details": json_text(edited(priority, run_at))}
    [found] = await desk.one("edit", **rows.refs(refs), **facts, channel=place.channel)
    return int(found[0])


async def place(desk: Desk, ref: Ref) -> int:
    [(before,)] = await desk.one("place", id=ref.id, queue=ref.queue, bound=COUNTED_PLACES)
    return int(before)


async def bucket(desk: Desk, name: str) -> Bucket:
    [found] = await desk.one("bucket", bucket=name)
    return Bucket(*found)


async def _finished(desk: Desk, text: str, place: Place, which: Filter, limit: int, **more: Any) -> int:
    condition, params = matching(which)
    text = text.replace("{matching}", condition)
    [found] = await _complete(desk, place, text, params | more | {"limit": limit})
    return int(found[0])


async def _complete(desk: Desk, place: Place, text: str, params: Params) -> list[Row]:
    """Ask with a statement that was completed with a condition of :mod:`filters`."""
    [answer] = await desk.alone(Query(text.replace("{schema}", place.quoted), params))
    return answer
