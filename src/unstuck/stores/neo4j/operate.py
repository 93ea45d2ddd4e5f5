"""What operators do and see."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from unstuck.errors import ConfigError, StoreError, StoreUnavailable
from unstuck.model import Event, Filter, Ref, Worker
from unstuck.store import Clock, Counts, Page
from unstuck.stores.counting import counts
from unstuck.stores.listing import behind, readable
from unstuck.stores.neo4j import rows
from unstuck.stores.neo4j.filters import end, finished, listing
from unstuck.stores.neo4j.lines import Lines
from unstuck.stores.telling import CANCELLED, COUNTED_PLACES, MOST_BROKEN, broken, edited
from unstuck.stores.values import at, instant, json_text, moment, worker
from unstuck.tokens import Bucket

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
    return Clock(at(now), max(0.001, uptime))


async def find(lines: Lines, which: Filter, limit: int, cursor: str | None) -> Page:
    found: list[rows.Params] = []
    for text, params in listing(lines.texts["find"], which, cursor, lines.place):
        if len(found) < limit:
            found += await lines.ask_text(text, params | {"limit": limit - len(found)})
    read = rows.read(found, lines.place)
    others = [
        (lines.place.ref(str(node.get("queue", lines.place.queue)), node["id"]), why)
        for node, why in read.unreadable
    ]
    jobs = readable(which, read.jobs, others)
    return Page(jobs, None if len(found) < limit else end(found[-1], which))


async def requeue(lines: Lines, which: Filter, limit: int) -> int:
    return int(await _finished(lines, "requeue", which, limit))


async def delete(lines: Lines, which: Filter, limit: int, *, apoc: bool) -> int:
    """With ``apoc``, old jobs go by it in smaller transactions; what it could not do is told."""
    if not apoc or which.older_than is None:
        return int(await _finished(lines, "delete", which, limit))
    done, failures, why = await _finished(lines, "delete_apoc", which, limit)
    if failures:
        raise StoreError(f"cleanup by APOC failed for {failures} jobs: {why}")
    return int(done)


async def _finished(lines: Lines, name: str, which: Filter, limit: int) -> Any:
    source, params = finished(which, lines.place)
    text = lines.texts[name].replace("{source}", source)
    return await lines.ask_text(text, params | {"limit": limit}, safe=False)


async def cancel(lines: Lines, refs: Sequence[Ref]) -> int:
    facts = {"addresses": rows.by_address(refs, lines.place), "queue": lines.place.queue}
    return int(await lines.ask("cancel", facts | rows.failure(CANCELLED)))


async def edit(lines: Lines, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    facts = {
        "addresses": rows.by_address(refs, lines.place),
        "queue": lines.place.queue,
        "priority": priority,
        "run_at": None if run_at is None else instant(run_at),
        "details": json_text(edited(priority, run_at)),
    }
    return int(await lines.ask("edit", facts))


async def place(lines: Lines, ref: Ref) -> int:
    facts = {"address": lines.place.address(*ref), "bound": COUNTED_PLACES}
    return int(await lines.ask("place", facts, safe=True))


async def bucket(lines: Lines, name: str) -> Bucket:
    out, first_back, closed_for = await lines.ask("bucket", {"bucket": name}, safe=True)
    return Bucket(out, first_back / 1000, closed_for / 1000)


async def count(lines: Lines) -> list[Counts]:
    answer = await lines.ask("count", {}, safe=True)
    return counts(rows.numbers(answer, lines.place), answer["totals"], answer["paused"])


async def verify(lines: Lines) -> list[str]:
    found = await lines.ask("verify", {"limit": MOST_BROKEN}, safe=True)
    return [
        broken(rule, *lines.place.ref(str(queue or lines.place.queue), str(address)))
        for rule, queue, address in found
    ]


async def workers(lines: Lines) -> list[Worker]:
    found = await lines.ask("workers", {}, safe=True)
    return [worker(facts, moment(started), moment(seen)) for started, seen, facts in found]


async def events(lines: Lines, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    facts: dict[str, Any] = {"after": behind(after), "limit": limit}
    if job is None:
        found = await lines.ask("events", facts, safe=True)
    else:
        found = await lines.ask("job_events", facts | {"address": lines.place.address(*job)}, safe=True)
    return [rows.event(row, lines.place) for row in found]
