"""The operations of producers and workers that take several statements. ``ask`` runs one statement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count, groupby
from typing import Any, NamedTuple

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Ending, Enqueued, Lease, NewJob, Ref
from unstuck.protocol.leases import ANSWER, PASSED_BY, Beat, HeartbeatAnswer, Recovery, Share, Verdict
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.stores.neo4j import rows
from unstuck.stores.neo4j.address import Neo4jAddress
from unstuck.stores.neo4j.client import Ask, Asked
from unstuck.stores.neo4j.rows import Params, Row
from unstuck.stores.shared.events import PROMOTE_AT_ONCE, REMEMBER_WORKERS
from unstuck.stores.shared.heads import FEW, with_work
from unstuck.stores.shared.settling import answers, missed, once_each
from unstuck.stores.shared.spacing import Effect, Standing, effect, existing
from unstuck.stores.shared.values import instant, json_text, milliseconds, worker_text


class New(NamedTuple):
    """Jobs as the statements read them, converted before anything is sent, because some cannot be stored."""

    jobs: Sequence[NewJob]
    rows: list[Params]
    births: Params


def new(jobs: Sequence[NewJob], address: Neo4jAddress) -> New:
    return New(jobs, [rows.new_row(job, number, address) for number, job in enumerate(jobs)], rows.births())


def _once_each(given: New) -> list[list[Params]]:
    """Split the rows into groups, in order, so that no group has a job twice."""
    groups: list[list[Params]] = []
    named: set[Any] = set()
    for row in given.rows:
        names = {
            row["address"],
            (row["entity_uid"], row["model"], row["version"]) if "model" in row else None,
        }
        if not groups or named & (names - {None}):
            groups.append([])
            named = set()
        groups[-1].append(row)
        named |= names
    return groups


def adding(group: Sequence[Params], births: Params) -> list[Asked]:
    """The statements that add jobs, none of which occurs twice. Jobs are locked in the order of their node ids."""
    plain = sorted((row for row in group if "model" not in row), key=lambda row: row["address"])
    about = sorted(
        (row for row in group if "model" in row),
        key=lambda row: (row["entity_uid"], row["model"], row["version"]),
    )
    asked = [Asked("enqueue", {"jobs": plain} | births)] if plain else []
    return [*asked, Asked("enqueue_embeddings", {"embeddings": about} | births)] if about else asked


def simple(given: New, address: Neo4jAddress) -> Asked | None:
    """The one statement that adds all jobs, if one is enough."""
    groups = _once_each(given)
    asked = adding(groups[0], given.births)
    more = len(groups) > 1 or len(asked) > 1 or address.all_events
    more = more or any(job.again or (job.key and job.interval) for job in given.jobs)
    return None if more else asked[0]


async def enqueue(ask: Ask, given: New, address: Neo4jAddress) -> list[Enqueued]:
    """Enqueue any jobs: also those that start others over, are spaced, occur twice, or have an event to record.

    In the order given: that is the order of equals in line. Where some are spaced, the keys are locked first, in one order,
    also those of jobs that are not spaced: several statements add them.
    """
    if any(job.interval for job in given.jobs):
        keys = sorted({(job.key, job.queue) for job in given.jobs if job.key})
        await ask("enqueue_lock", {"keys": [{"queue": queue, "key": key} for key, queue in keys]})
    answers: dict[int, Enqueued] = {}
    # Each statement has a call number of its own, because otherwise the second would pass for a repetition of the first.
    calls = count(given.births["call"])
    for apart, some in groupby(given.rows, key=lambda row: given.jobs[row["number"]].interval > 0):
        for group in [[row] for row in some] if apart else [list(some)]:
            answers |= await (_space if apart else _add)(ask, given._replace(rows=group), calls, address)
    made = [answers[number] for number in range(len(given.jobs))]
    if address.all_events and (created := [answer.ref for answer in made if answer.created]):
        await ask("log_events", {"logged": [_event("enqueued", ref, {}, address) for ref in created]})
    return made


async def _add(ask: Ask, given: New, calls: Iterator[int], address: Neo4jAddress) -> dict[int, Enqueued]:
    """Add some of the jobs; answers by their numbers."""
    answers: dict[int, Enqueued] = {}
    for group in _once_each(given):
        births = given.births | {"call": next(calls)}
        found = [row for name, params in adding(group, births) for row in await ask(name, params)]
        answers |= added(given.jobs, found, address)
        again = [
            row | {"address": address.node_id(*answers[row["number"]].ref)}
            for row in group
            if given.jobs[row["number"]].again and not answers[row["number"]].created
        ]
        if again:
            ordered = sorted(again, key=lambda row: row["address"])
            for number in await ask("enqueue_again", {"again": ordered} | births):
                ref = answers[number].ref
                answers[number] = Enqueued(*ref, created=True)
    return answers


async def _space(ask: Ask, given: New, calls: Iterator[int], address: Neo4jAddress) -> dict[int, Enqueued]:
    """As ``_add``, for one spaced job."""
    [row] = given.rows
    number: int = row["number"]
    job = given.jobs[number]
    where = {"queue": job.queue, "key": job.key}
    asked = where | {"address": row["address"], "replaces": job.debounce is not None}
    found = await ask("enqueue_standing", asked)
    standing = Standing(*found) if found else None
    done = effect(job, standing)
    if standing is None or done is Effect.ADDED:
        answers = await _add(ask, given, calls, address)
        repeated = standing is not None and standing.repeated  # by a call whose answer may have been lost
        if repeated or not answers[number].created:
            return answers
        at = row["address"]
    else:
        at = standing.id
        known = standing._replace(id=address.ref(job.queue, at).id)
        answers = {number: existing(job, known)}
        if done is Effect.DROPPED:
            return answers
        what = {name: row[name] for name in ("delay", "expires", "expires_at", "facts")}
        await ask("enqueue_instead", what | {"address": at})
    await ask("enqueue_space", where | {"address": at, "interval": milliseconds(job.interval)})
    return answers


def added(jobs: Sequence[NewJob], found: Sequence[Row], address: Neo4jAddress) -> dict[int, Enqueued]:
    """The answers by the numbers of their jobs. An embedding job that exists already may have another id."""
    answers = {}
    for number, node_id, created, digest in found:
        job = jobs[number]
        same = created or digest is None or digest == job.digest
        answers[number] = Enqueued(*address.ref(job.queue, node_id), created=created, same=same)
    return answers


def settling(outcomes: Sequence[Outcome], address: Neo4jAddress) -> Asked:
    """The statement that ends leases, each of which occurs once. Jobs are locked in the order of their node ids."""
    numbered = list(enumerate(outcomes))
    if not address.all_events and all(outcome.ending is Ending.COMPLETED for outcome in outcomes):
        done = sorted(rows.completion(outcome, number, address) for number, outcome in numbered)
        return Asked("complete", {"completed": done})
    ended = [rows.ending(outcome, number, address) for number, outcome in numbered]
    ended.sort(key=lambda row: row["address"])
    return Asked("settle", {"outcomes": ended, "events": rows.events(outcomes, address.all_events)})


async def settled(
    ask: Ask, outcomes: Sequence[Outcome], applied: Sequence[int], address: Neo4jAddress
) -> list[Settled]:
    """What became of each outcome; for those that were not applied, read how their jobs ended."""
    if len(applied) == len(outcomes):
        return [Settled.APPLIED] * len(outcomes)
    done = set(applied)
    lost = [outcome.lease.ref for outcome in missed(outcomes, done)]
    found = await ask("settled", {"addresses": rows.node_ids(lost, address)})
    ended = {node_id: (fence, word) for node_id, fence, word in found}
    return answers(outcomes, done, {ref: ended[at] for ref in lost if (at := address.node_id(*ref)) in ended})


async def settle(
    ask: Ask, outcomes: Sequence[Outcome], follow: Mapping[int, New], address: Neo4jAddress
) -> list[Settled]:
    """Settle any outcomes, with their pauses, halts and follow-up jobs."""
    if stopping := sorted({outcome.lease.queue for outcome in outcomes if outcome.pause or outcome.halt}):
        # Takes the same locks in the same order as leasing.
        await ask("crowd", leasing({queue: Share(0.0, 0) for queue in stopping}, 0, ""))
    became: list[Settled] = []
    for some in once_each(outcomes):
        name, params = settling(some, address)
        became += await settled(ask, some, await ask(name, params), address)
    applied = [n for n, answer in enumerate(became) if answer is Settled.APPLIED]
    if pauses := {outcomes[n].lease.queue: outcomes[n].pause for n in applied if outcomes[n].pause}:
        await ask("pause", {"pauses": [_pause(queue, why) for queue, why in sorted(pauses.items())]})
    if halts := {outcomes[n].lease.queue: outcomes[n].halt for n in applied if outcomes[n].halt}:
        await ask("halt", {"halts": [_pause(queue, why) for queue, why in sorted(halts.items())]})
    for number in applied:
        if number in follow:
            await enqueue(ask, follow[number], address)
    return became


async def having_work(ask: Ask, queues: Collection[str], *, any_time: bool = False) -> Collection[str]:
    """The queues that have anything to look at: of a few it costs less to look at all than to ask."""
    if len(queues) <= FEW:
        return queues
    found: list[str] = []
    behind: Params = {"in_line": "", "delayed": ""}
    while any(at is not None for at in behind.values()):
        some, behind["in_line"], behind["delayed"] = await ask("heads", behind | {"any_time": any_time})
        found += some
        if len(found) > 2 * len(queues):
            return queues
    return with_work(queues, found)


def leasing(queues: Mapping[str, Share], limit: int, owner: str) -> Params:
    """What lease.cypher and crowd.cypher read. Queues are locked in the order of their names."""
    shares = [
        {
            "queue": queue,
            "lease": milliseconds(share.seconds),
            "most": min(share.limit, limit),
            "only_new": share.only_new,
            "turn": share.turn,
            "step": share.step,
        }
        for queue, share in sorted(queues.items())
    ]
    reach = limit + (PASSED_BY if any(share.only_new for share in queues.values()) else 0)
    facts = {"shares": shares, "limit": limit, "reach": reach, "owner": owner}
    return facts | {"promote": PROMOTE_AT_ONCE, "bytes": ANSWER}


async def lease(
    ask: Ask, queues: Mapping[str, Share], limit: int, owner: str, address: Neo4jAddress
) -> list[Row]:
    """Lease where running jobs are limited or leases are recorded as events."""
    facts = leasing(queues, limit, owner)
    busy = {queue: dict(map(tuple, lanes)) for queue, lanes in await ask("crowd", facts)}
    lanes = [share for share in facts["shares"] if queues[share["queue"]].per_lane and share["queue"] in busy]
    lines = [share for share in facts["shares"] if share not in lanes and share["queue"] in busy]
    heads = dict(map(tuple, await ask("lanes", {"lanes": lanes}))) if lanes else {}
    line = dict(map(tuple, await ask("line", {"lines": lines, "reach": facts["reach"]}))) if lines else {}
    chosen: list[tuple[float, int, int, str, int]] = []
    for queue, running in busy.items():
        share = queues[queue]
        most = reach = min(share.limit, limit)
        if queue in heads:
            turns = _turns(heads[queue], running, share.per_lane or 0)
        else:
            turns, reach = line.get(queue, []), most + PASSED_BY * share.only_new
        if share.at_a_time is not None:
            reach = min(reach, share.at_a_time - sum(running.values()))
        # Jobs that were leased before are left to others, and so is the room that they would take.
        taken = [position for *position, settled in turns[: max(0, reach)] if settled is None][:most]
        # Turns of queues, and then positions, decide how many jobs of each are leased; within a queue turns of lanes decide which.
        positions = sorted((rank, seq) for rank, seq, _ in taken)
        length = milliseconds(share.seconds)
        chosen += [
            (share.stands(number), *position, node_id, length)
            for number, (position, (_, _, node_id)) in enumerate(zip(positions, taken, strict=True))
        ]
    best = sorted(chosen)[:limit]
    wanted = [{"address": node_id, "lease": length} for *_, node_id, length in best]
    found: list[Row] = (
        await ask("lease_chosen", {"chosen": wanted, "owner": owner, "bytes": ANSWER}) if wanted else []
    )
    if address.all_events and found:
        events = [
            _event(
                "leased",
                address.ref(node["queue"], node["id"]),
                {"fence": node["fence"], "owner": owner},
                address,
            )
            for _, node in found
        ]
        await ask("log_events", {"logged": events})
    order = {node_id: number for number, (*_, node_id, _) in enumerate(best)}
    return sorted(found, key=lambda one: order[one[1]["id"]])


def _turns(heads: Sequence[Row], running: Mapping[str | None, int], per_lane: int) -> list[Row]:
    """A job's turn is how many jobs of its lane would be running before it. Jobs without a lane have turn 0."""
    turns = []
    for lane, line in heads:
        before = 0 if lane is None else running.get(lane, 0)
        for number, (rank, seq, node_id, settled) in enumerate(line):
            turn = 0 if lane is None else before + number
            if lane is None or turn < per_lane:
                turns.append((turn, rank, seq, node_id, settled))
    return [[rank, seq, node_id, settled] for _, rank, seq, node_id, settled in sorted(turns)]


async def heartbeat(
    ask: Ask, worker: WorkerInfo, beats: Sequence[Beat], address: Neo4jAddress
) -> HeartbeatAnswer:
    """At most two statements, each in a transaction of its own."""
    named = list({beat.lease: beat for beat in beats}.values())
    renewals = [rows.beat(beat, number, address) for number, beat in enumerate(named)]
    facts: Params = {
        "owner": worker.id,
        "facts": worker_text(worker),
        "remember": milliseconds(REMEMBER_WORKERS),
    }
    renewals.sort(key=lambda row: row["address"])
    renewed, strangers = await ask("heartbeat", facts | {"beats": renewals})
    verdicts = dict.fromkeys((beat.lease for beat in named), Verdict.LOST)
    verdicts |= {named[number].lease: Verdict.HELD for number in renewed}
    if lost := {
        lease: address.node_id(*lease.ref) for lease, verdict in verdicts.items() if verdict is Verdict.LOST
    }:
        ended = await ask("settled", {"addresses": sorted(set(lost.values()))})
        cancelled = {node_id for node_id, _, word in ended if word == Ending.CANCELLED}
        verdicts |= {lease: Verdict.CANCELLED for lease, node_id in lost.items() if node_id in cancelled}
    held = (
        Lease(*address.ref(queue or address.queue, node_id), fence)
        for queue, node_id, fence in strangers
        if isinstance(node_id, str)  # a node with another id, or none, cannot be given back
    )
    return HeartbeatAnswer(verdicts, [lease for lease in held if lease not in verdicts])


def reclaiming(recovery: Recovery) -> list[Asked]:
    """The statements of a recovery: how many were adopted, what was taken over, when the next lease ends."""
    queues, as_of = recovery.queues, recovery.as_of
    wanted: Params = {"queues": None if queues is None else list(queues), "limit": recovery.limit}
    facts = wanted | {"owner": recovery.owner, "lease": milliseconds(recovery.seconds), "bytes": ANSWER}
    spans = [[milliseconds(span.since), milliseconds(span.until)] for span in recovery.blind]
    return [
        Asked("adopt", wanted | {"grace": milliseconds(recovery.grace)}),
        Asked("reclaim", facts | {"blind": spans, "as_of": None if as_of is None else instant(as_of)})
        if recovery.of is None
        else Asked("reclaim_of", facts | {"of": list(recovery.of)}),
        Asked("next_end", wanted),
    ]


async def tick(
    ask: Ask,
    schedule: str,
    slot: datetime | None,
    given: New,
    address: Neo4jAddress,
    instead_of: datetime | None,
) -> bool:
    if slot is None:
        return bool(await ask("tick_none", {"schedule": schedule}))
    ahead = None if instead_of is None else instant(instead_of)
    if not await ask("tick", {"schedule": schedule, "slot": instant(slot), "instead_of": ahead}):
        return False
    await enqueue(ask, given, address)
    return True


def _pause(queue: str, why: str) -> Params:
    return {"queue": queue, "why": why, "details": json_text({"why": why})}


def pausing(queue: str, why: str) -> Params:
    return {"pauses": [_pause(queue, why)]}


def _event(type_: str, ref: Ref, details: Params, address: Neo4jAddress) -> Params:
    return {
        "type": type_,
        "queue": ref.queue,
        "address": address.node_id(*ref),
        "details": json_text(details),
    }
