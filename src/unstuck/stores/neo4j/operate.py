"""What operators do and see."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from unstuck.errors import ConfigError, StoreError, StoreUnavailable
from unstuck.model import Event, Filter, Ref, Worker
from unstuck.store import Bucket, Clock, Counts, Page
from unstuck.stores.listing import by_finish
from unstuck.stores.neo4j import rows
from unstuck.stores.neo4j.filters import finished, listing
from unstuck.stores.neo4j.lines import Lines
from unstuck.stores.telling import CANCELLED, COUNTED_PLACES, MOST_BROKEN

log = logging.getLogger("unstuck.neo4j")

_UPTIME = "CALL dbms.queryJmx('java.lang:type=Runtime') YIELD attributes RETURN attributes.Uptime.value"


async def clock(lines: Lines) -> Clock:
    now = await lines.ask("clock", {}, safe=True)
    try:
        [[found]] = await lines.rows(_UPTIME)
        uptime = found / 1000
    except StoreUnavailable:
        raise
    except (StoreError, ConfigError) as error:  # not everybody may ask
        log.debug("the server does not say since when it is up: %s", error)
        uptime = math.inf
    return Clock(rows.at(now), max(0.001, uptime))


async def find(lines: Lines, which: Filter, limit: int, cursor: str | None) -> Page:
    text, params = listing(lines.texts["find"], which, cursor, lines.place.label)
    found = await lines.ask_text(text, params | {"limit": limit})
    jobs = [rows.job(node, lines.place) for node in found]
    if len(found) < limit:
        return Page(jobs, None)
    seq = found[-1].get("seq", 0)
    return Page(jobs, f"{found[-1]['processed_at']}.{seq}" if by_finish(which) else str(seq))


async def requeue(lines: Lines, which: Filter, limit: int) -> int:
    return int(await _finished(lines, "requeue", which, limit, embedding=lines.place.queue))


async def delete(lines: Lines, which: Filter, limit: int, *, apoc: bool) -> int:
    """With ``apoc``, old jobs go by it in smaller transactions; what it could not do is told."""
    if not apoc or which.older_than is None:
        return int(await _finished(lines, "delete", which, limit))
    done, failures, why = await _finished(lines, "delete_apoc", which, limit)
    if failures:
        raise StoreError(f"cleanup by APOC failed for {failures} jobs: {why}")
    return int(done)


async def _finished(lines: Lines, name: str, which: Filter, limit: int, **more: Any) -> Any:
    source, params = finished(which, lines.place.label)
    text = lines.texts[name].replace("{source}", source)
    return await lines.ask_text(text, params | more | {"limit": limit}, safe=False)


async def cancel(lines: Lines, refs: Sequence[Ref]) -> int:
    facts = {"addresses": rows.by_address(refs, lines.place), "queue": lines.place.queue}
    return int(await lines.ask("cancel", facts | rows.failure(CANCELLED)))


async def edit(lines: Lines, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    changed = {"priority": priority, "run_at": run_at}
    facts = {
        "addresses": rows.by_address(refs, lines.place),
        "priority": priority,
        "run_at": None if run_at is None else rows.instant(run_at),
        "details": rows.json_text({name: value for name, value in changed.items() if value is not None}),
    }
    return int(await lines.ask("edit", facts))


async def place(lines: Lines, ref: Ref) -> int:
    facts = {"address": lines.place.address(*ref), "bound": COUNTED_PLACES}
    return int(await lines.ask("place", facts, safe=True))


async def bucket(lines: Lines, name: str) -> Bucket:
    out, first_back, closed_for = await lines.ask("bucket", {"bucket": name}, safe=True)
    return Bucket(out, first_back / 1000, closed_for / 1000)


async def count(lines: Lines) -> list[Counts]:
    return rows.counts(await lines.ask("count", {}, safe=True), lines.place)


async def verify(lines: Lines) -> list[str]:
    found = await lines.ask("verify", {"limit": MOST_BROKEN}, safe=True)
    told = ((rule, lines.place.ref(queue or lines.place.queue, address)) for rule, queue, address in found)
    return [f"{rule}: job {ref.id} of queue {ref.queue}" for rule, ref in told]


async def workers(lines: Lines) -> list[Worker]:
    return [rows.worker(row) for row in await lines.ask("workers", {}, safe=True)]


async def events(lines: Lines, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    facts: dict[str, Any] = {
        "after": int(after) if after is not None and after.isdecimal() else 0,
        "limit": limit,
    }
    if job is None:
        found = await lines.ask("events", facts, safe=True)
    else:
        found = await lines.ask("job_events", facts | {"address": lines.place.address(*job)}, safe=True)
    return [rows.event(row, lines.place) for row in found]
