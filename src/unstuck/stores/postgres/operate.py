"""The operations of operators. ``sql`` has the statements of this folder, made out for the schema of ``address``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from unstuck.protocol.fleet import Fleet
from unstuck.protocol.job import Ref
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.stores.postgres import rows
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.filters import listing, matching
from unstuck.stores.postgres.round_trips import RoundTrips
from unstuck.stores.postgres.rows import Params, Query, Row, json_text
from unstuck.stores.shared.counting import by_kind, counts, with_ahead
from unstuck.stores.shared.events import CANCELLED, COUNTED_PLACES, MOST_BROKEN, broken, edited
from unstuck.stores.shared.listing import behind, by_finish, readable
from unstuck.stores.shared.values import worker

Texts = Mapping[str, str]


async def find(
    trips: RoundTrips, sql: Texts, address: Address, which: Filter, limit: int, cursor: str | None
) -> Page:
    text, params = listing(sql["find"], which, cursor)
    found = await _complete(trips, address, text, params | {"limit": limit})
    read = rows.each(text for _, _, text in found)
    jobs = readable(which, read.jobs, [(ref, why) for ref, _, why in read.unreadable])
    if len(found) < limit:
        return Page(jobs, None)
    seq, finished, _ = found[-1]
    return Page(jobs, f"{finished}.{seq}" if by_finish(which) else str(seq))


async def count(trips: RoundTrips, ahead_of: Ref | None) -> list[Counts]:
    queries = [Query("count", {}), Query("counters", {}), Query("queues", {})]
    if ahead_of is not None:
        queries.append(Query("ahead", {**ahead_of._asdict(), "bound": COUNTED_PLACES}))
    kinds, totals, stopped, *ahead = await trips.snapshot(*queries)
    found = counts(by_kind(kinds), totals, stopped)
    return found if ahead_of is None else with_ahead(found, ahead_of.queue, int(ahead[0][0][0]))


async def broken_rules(trips: RoundTrips) -> list[Finding]:
    [found] = await trips.alone(Query("verify", {"limit": MOST_BROKEN}), patience=None)
    return [broken(*row) for row in found]


async def fleet(trips: RoundTrips) -> Fleet:
    found = await trips.one("fleet")
    return Fleet(
        [worker(facts, began, seen) for _, began, seen, facts in found if facts is not None],
        {name: slot for name, _, slot, facts in sorted(found, key=lambda row: row[0]) if facts is None},
    )


async def events(trips: RoundTrips, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    asked = {"after": behind(after), "limit": limit}
    if job is None:
        found = await trips.one("events", **asked)
    else:
        found = await trips.one("job_events", id=job.id, queue=job.queue, **asked)
    return [rows.event(row) for row in found]


async def requeue(trips: RoundTrips, sql: Texts, address: Address, which: Filter, limit: int) -> int:
    return await _finished(trips, sql["requeue"], address, which, limit, channel=address.channel)


async def delete(trips: RoundTrips, sql: Texts, address: Address, which: Filter, limit: int) -> int:
    return await _finished(trips, sql["delete"], address, which, limit)


async def cancel(trips: RoundTrips, refs: Sequence[Ref]) -> int:
    facts = {"error": json_text(CANCELLED), "code": CANCELLED.code}
    [found] = await trips.one("cancel", **facts, **rows.refs(refs))
    return int(found[0])


async def edit(
    trips: RoundTrips, address: Address, refs: Sequence[Ref], priority: int | None, run_at: datetime | None
) -> int:
    facts = {"priority": priority, "run_at": run_at, "details": json_text(edited(priority, run_at))}
    [found] = await trips.one("edit", **rows.refs(refs), **facts, channel=address.channel)
    return int(found[0])


async def _finished(
    trips: RoundTrips, text: str, address: Address, which: Filter, limit: int, **more: Any
) -> int:
    condition, params = matching(which)
    text = text.replace("{matching}", condition)
    [found] = await _complete(trips, address, text, params | more | {"limit": limit})
    return int(found[0])


async def _complete(trips: RoundTrips, address: Address, text: str, params: Params) -> list[Row]:
    """Run a statement that was completed with a condition of :mod:`filters`."""
    [answer] = await trips.alone(Query(text.replace("{schema}", address.quoted), params))
    return answer
