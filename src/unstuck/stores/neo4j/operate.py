"""The operations of operators: listing, counting, and changing jobs by hand."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from unstuck.protocol.availability import Clock
from unstuck.protocol.errors import ConfigError, StoreError, StoreUnavailable
from unstuck.protocol.fleet import Fleet
from unstuck.protocol.job import Ref
from unstuck.protocol.limits import Grant
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.stores.neo4j import rows
from unstuck.stores.neo4j.client import Neo4jClient
from unstuck.stores.neo4j.filters import end, finished, listing
from unstuck.stores.shared.counting import counts, with_ahead
from unstuck.stores.shared.events import CANCELLED, COUNTED_PLACES, MOST_BROKEN, broken, edited
from unstuck.stores.shared.listing import behind, readable
from unstuck.stores.shared.values import at, instant, json_text, moment, worker

log = logging.getLogger("unstuck.neo4j")

_UPTIME = "CALL dbms.queryJmx('java.lang:type=Runtime') YIELD attributes RETURN attributes.Uptime.value"

_COUNT_AGAIN = 5  # times, while counters are folded
_LOOK_AGAIN = (0.05, 0.5)  # seconds after which a commit that was half read is complete


async def clock(client: Neo4jClient) -> Clock:
    now = await client.ask("clock", {}, safe=True)
    try:
        [[found]] = await client.rows(_UPTIME)
        uptime = found / 1000
    except StoreUnavailable:
        raise
    except (StoreError, ConfigError) as error:  # the user may lack the privilege
        log.debug("the server does not report its uptime: %s", error)
        uptime = math.inf
    return Clock(at(now), max(0.001, uptime))


async def find(client: Neo4jClient, which: Filter, limit: int, cursor: str | None) -> Page:
    found: list[rows.Params] = []
    for text, params in listing(client.statements["find"], which, cursor, client.address):
        if len(found) < limit:
            found += await client.ask_text(text, params | {"limit": limit - len(found)})
    read = rows.read(found, client.address)
    others = [
        (client.address.ref(str(node.get("queue", client.address.queue)), node["id"]), why)
        for node, why in read.unreadable
    ]
    jobs = readable(which, read.jobs, others)
    return Page(jobs, None if len(found) < limit else end(found[-1], which))


async def requeue(client: Neo4jClient, which: Filter, limit: int) -> int:
    return int(await _finished(client, "requeue", which, limit))


async def delete(client: Neo4jClient, which: Filter, limit: int, *, apoc: bool) -> int:
    """With ``apoc``, APOC deletes old jobs in smaller transactions; its failures are raised."""
    if not apoc or which.older_than is None:
        return int(await _finished(client, "delete", which, limit))
    done, failures, why = await _finished(client, "delete_apoc", which, limit)
    if failures:
        raise StoreError(f"cleanup by APOC failed for {failures} jobs: {why}")
    return int(done)


async def _finished(client: Neo4jClient, name: str, which: Filter, limit: int) -> Any:
    source, params = finished(which, client.address)
    text = client.statements[name].replace("{source}", source)
    return await client.ask_text(text, params | {"limit": limit}, safe=False)


async def cancel(client: Neo4jClient, refs: Sequence[Ref]) -> int:
    facts = {"addresses": rows.node_ids(refs, client.address), "queue": client.address.queue}
    return int(await client.ask("cancel", facts | rows.failure(CANCELLED)))


async def edit(
    client: Neo4jClient, refs: Sequence[Ref], priority: int | None, run_at: datetime | None
) -> int:
    facts = {
        "addresses": rows.node_ids(refs, client.address),
        "queue": client.address.queue,
        "priority": priority,
        "run_at": None if run_at is None else instant(run_at),
        "details": json_text(edited(priority, run_at)),
    }
    return int(await client.ask("edit", facts))


def grant(answer: Sequence[int]) -> Grant:
    granted, stamp, out, first_back, closed_for = answer
    return Grant(granted, stamp, out, first_back / 1000, closed_for / 1000)


async def count(client: Neo4jClient, ahead_of: Ref | None) -> list[Counts]:
    """Read again if counters were folded meanwhile: that happens once in thousands of outcomes, so hardly twice in a row."""
    for _ in range(_COUNT_AGAIN):
        answer = await client.ask("count", {}, safe=True)
        totals = [
            row for row in answer["totals"] if row[0] is not None
        ]  # otherwise the counter was deleted during the read
        if answer["steady"] and len(totals) == len(answer["totals"]):
            break
    found = counts(rows.numbers(answer, client.address), totals, answer["stopped"])
    if ahead_of is None:
        return found
    facts = {"address": client.address.node_id(*ahead_of), "bound": COUNTED_PLACES}
    return with_ahead(found, ahead_of.queue, int(await client.ask("ahead", facts, safe=True)))


async def broken_rules(client: Neo4jClient) -> list[Finding]:
    """Check what seems broken again: a statement reads each property at its own moment, also while another commits."""
    found = await client.ask("verify", {"limit": MOST_BROKEN}, safe=True)
    for pause in _LOOK_AGAIN:
        if not found:
            break
        await asyncio.sleep(pause)
        still = await client.ask("verify", {"limit": 100 * MOST_BROKEN}, safe=True)
        found = [one for one in found if one in still]
    return [
        broken(rule, *client.address.ref(str(queue or client.address.queue), str(node_id)))
        for rule, queue, node_id in found
    ]


async def fleet(client: Neo4jClient) -> Fleet:
    found = await client.ask("fleet", {}, safe=True)
    return Fleet(
        [worker(facts, moment(began), moment(seen)) for began, seen, facts in found["workers"]],
        {name: at(slot) for name, slot in found["slots"]},
    )


async def events(client: Neo4jClient, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    facts: dict[str, Any] = {"after": behind(after), "limit": limit}
    if job is None:
        found = await client.ask("events", facts, safe=True)
    else:
        found = await client.ask("job_events", facts | {"address": client.address.node_id(*job)}, safe=True)
    return [rows.event(row, client.address) for row in found]
