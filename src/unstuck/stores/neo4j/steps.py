"""What producers and workers do in several statements of one transaction. ``ask`` carries one of them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from unstuck.model import Beat, Lease, NewJob, Outcome, Ref, Settled, Verdict, Word, Worker
from unstuck.store import Blind, Enqueued, Pulse, Share
from unstuck.stores.neo4j import rows
from unstuck.stores.neo4j.lines import Ask, Asked
from unstuck.stores.neo4j.place import Place
from unstuck.stores.neo4j.rows import Params, Row
from unstuck.stores.settling import answers, missed, once_each
from unstuck.stores.telling import PROMOTE_AT_ONCE, REMEMBER_WORKERS
from unstuck.stores.values import instant, json_text, milliseconds, worker_text


class New(NamedTuple):
    """Jobs as the statements read them: made before anything is sent, because some cannot be stored at all."""

    jobs: Sequence[NewJob]
    rows: list[Params]
    births: Params


def new(jobs: Sequence[NewJob], place: Place) -> New:
    return New(jobs, [rows.new_row(job, number, place) for number, job in enumerate(jobs)], rows.births())


def _once_each(given: New) -> list[list[Params]]:
    """The rows in groups, in order, in each of which no job is named twice."""
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
    """The statements that add jobs of which none is named twice. They are locked in the order of addresses."""
    plain = sorted((row for row in group if "model" not in row), key=lambda row: row["address"])
    about = sorted(
        (row for row in group if "model" in row),
        key=lambda row: (row["entity_uid"], row["model"], row["version"]),
    )
    asked = [Asked("enqueue", {"jobs": plain} | births)] if plain else []
    return [*asked, Asked("enqueue_embeddings", {"embeddings": about} | births)] if about else asked


def simple(given: New, place: Place) -> Asked | None:
    """The one statement that does it all, if one does."""
    groups = _once_each(given)
    asked = adding(groups[0], given.births)
    more = len(groups) > 1 or len(asked) > 1 or place.all_events or any(job.again for job in given.jobs)
    return None if more else asked[0]


async def enqueue(ask: Ask, given: New, place: Place) -> list[Enqueued]:
    """Any jobs: also those that start others over, that are named twice, or whose enqueueing is to be told."""
    answers: dict[int, Enqueued] = {}
    for turn, group in enumerate(_once_each(given)):
        # A call of its own for each, or the second would be taken for the first.
        births = given.births | {"call": given.births["call"] + turn}
        found = [row for name, params in adding(group, births) for row in await ask(name, params)]
        answers |= added(given.jobs, found, place)
        again = [
            row | {"address": place.address(*answers[row["number"]].ref)}
            for row in group
            if given.jobs[row["number"]].again and not answers[row["number"]].created
        ]
        if again:
            ordered = sorted(again, key=lambda row: row["address"])
            for number in await ask("enqueue_again", {"again": ordered, "call": births["call"]}):
                ref = answers[number].ref
                answers[number] = Enqueued(*ref, created=True)
    made = [answers[number] for number in range(len(given.jobs))]
    if place.all_events and (told := [answer.ref for answer in made if answer.created]):
        await ask("tell", {"told": [_event("enqueued", ref, {}, place) for ref in told]})
    return made


def added(jobs: Sequence[NewJob], found: Sequence[Row], place: Place) -> dict[int, Enqueued]:
    """The answers by the numbers of their jobs. An embedding job that is there already may have another id."""
    answers = {}
    for number, address, created, digest in found:
        job = jobs[number]
        same = created or digest is None or digest == job.digest
        answers[number] = Enqueued(*place.ref(job.queue, address), created=created, same=same)
    return answers


def settling(outcomes: Sequence[Outcome], place: Place) -> Asked:
    """The statement that ends leases, each named once. They are locked in the order of addresses."""
    numbered = list(enumerate(outcomes))
    if not place.all_events and all(outcome.word is Word.COMPLETED for outcome in outcomes):
        done = sorted(rows.completion(outcome, number, place) for number, outcome in numbered)
        return Asked("complete", {"completed": done})
    ended = [rows.ending(outcome, number, place) for number, outcome in numbered]
    ended.sort(key=lambda row: row["address"])
    return Asked("settle", {"outcomes": ended, "events": rows.events(outcomes, place.all_events)})


async def settled(
    ask: Ask, outcomes: Sequence[Outcome], applied: Sequence[int], place: Place
) -> list[Settled]:
    """What became of each outcome; of those that were not applied it is asked how their jobs ended."""
    if len(applied) == len(outcomes):
        return [Settled.APPLIED] * len(outcomes)
    done = set(applied)
    lost = [outcome.lease.ref for outcome in missed(outcomes, done)]
    found = await ask("settled", {"addresses": rows.by_address(lost, place)})
    ended = {address: (fence, word) for address, fence, word in found}
    return answers(outcomes, done, {ref: ended[at] for ref in lost if (at := place.address(*ref)) in ended})


async def settle(
    ask: Ask, outcomes: Sequence[Outcome], follow: Mapping[int, New], place: Place
) -> list[Settled]:
    """Any outcomes, with what follows from them: pauses and further jobs."""
    if pausing := sorted({outcome.lease.queue for outcome in outcomes if outcome.pause}):
        await ask("crowd", leasing({queue: Share(0.0, 0) for queue in pausing}, 0, ""))  # as leasing locks
    became: list[Settled] = []
    for some in once_each(outcomes):
        name, params = settling(some, place)
        became += await settled(ask, some, await ask(name, params), place)
    applied = [n for n, answer in enumerate(became) if answer is Settled.APPLIED]
    if pauses := {outcomes[n].lease.queue: outcomes[n].pause for n in applied if outcomes[n].pause}:
        await ask("pause", {"pauses": [_pause(queue, why) for queue, why in sorted(pauses.items())]})
    for number in applied:
        if number in follow:
            await enqueue(ask, follow[number], place)
    return became


def leasing(queues: Mapping[str, Share], limit: int, owner: str) -> Params:
    """What lease and crowd read. Queues are locked in the order of their names."""
    shares = [
        {"queue": queue, "lease": milliseconds(share.seconds), "most": min(share.limit, limit)}
        for queue, share in sorted(queues.items())
    ]
    return {"shares": shares, "limit": limit, "owner": owner, "promote": PROMOTE_AT_ONCE}


async def lease(ask: Ask, queues: Mapping[str, Share], limit: int, owner: str, place: Place) -> list[Row]:
    """Lease where somebody counts what runs, or is to be told of it."""
    facts = leasing(queues, limit, owner)
    busy = {queue: dict(map(tuple, lanes)) for queue, lanes in await ask("crowd", facts)}
    lanes = [share for share in facts["shares"] if queues[share["queue"]].per_lane and share["queue"] in busy]
    lines = [share for share in facts["shares"] if share not in lanes and share["queue"] in busy]
    heads = dict(map(tuple, await ask("lanes", {"lanes": lanes}))) if lanes else {}
    line = dict(map(tuple, await ask("line", {"lines": lines, "limit": limit}))) if lines else {}
    chosen: list[tuple[int, int, str, int]] = []
    for queue, running in busy.items():
        share = queues[queue]
        room = min(share.limit, limit)
        if share.at_a_time is not None:
            room = min(room, share.at_a_time - sum(running.values()))
        turns = _turns(heads[queue], running, share.per_lane or 0) if queue in heads else line.get(queue, [])
        taken = turns[: max(0, room)]
        # Among queues the places decide how many of this one are leased, within it the turns decide which.
        places = sorted((rank, seq) for rank, seq, _ in taken)
        length = milliseconds(share.seconds)
        chosen += [(*place_, address, length) for place_, (_, _, address) in zip(places, taken, strict=True)]
    best = sorted(chosen)[:limit]
    wanted = [{"address": address, "lease": length} for _, _, address, length in best]
    found: list[Row] = await ask("lease_chosen", {"chosen": wanted, "owner": owner}) if wanted else []
    if place.all_events and found:
        told = [
            _event(
                "leased",
                place.ref(node["queue"], node["id"]),
                {"fence": node["fence"], "owner": owner},
                place,
            )
            for _, node in found
        ]
        await ask("tell", {"told": told})
    order = {address: number for number, (_, _, address, _) in enumerate(best)}
    return sorted(found, key=lambda one: order[one[1]["id"]])


def _turns(heads: Sequence[Row], running: Mapping[str | None, int], per_lane: int) -> list[Row]:
    """A job's turn is how many of its lane would be running before it. Those without a lane wait for no one's turn."""
    turns = []
    for lane, line in heads:
        before = 0 if lane is None else running.get(lane, 0)
        for number, (rank, seq, address) in enumerate(line):
            turn = 0 if lane is None else before + number
            if lane is None or turn < per_lane:
                turns.append((turn, rank, seq, address))
    return [[rank, seq, address] for _, rank, seq, address in sorted(turns)]


async def heartbeat(ask: Ask, worker: Worker, beats: Sequence[Beat], place: Place) -> Pulse:
    """Two statements at the most, each a transaction of its own."""
    named = list({beat.lease: beat for beat in beats}.values())
    said = [rows.beat(beat, number, place) for number, beat in enumerate(named)]
    facts: Params = {
        "owner": worker.id,
        "facts": worker_text(worker),
        "remember": milliseconds(REMEMBER_WORKERS),
    }
    said.sort(key=lambda row: row["address"])
    renewed, strangers = await ask("heartbeat", facts | {"beats": said})
    verdicts = dict.fromkeys((beat.lease for beat in named), Verdict.LOST)
    verdicts |= {named[number].lease: Verdict.HELD for number in renewed}
    if lost := {
        lease: place.address(*lease.ref) for lease, verdict in verdicts.items() if verdict is Verdict.LOST
    }:
        ended = await ask("settled", {"addresses": sorted(set(lost.values()))})
        cancelled = {address for address, _, word in ended if word == Word.CANCELLED}
        verdicts |= {lease: Verdict.CANCELLED for lease, address in lost.items() if address in cancelled}
    held = (
        Lease(*place.ref(queue or place.queue, address), fence)
        for queue, address, fence in strangers
        if isinstance(address, str)  # a node with another id, or none, cannot be given back
    )
    return Pulse(verdicts, [lease for lease in held if lease not in verdicts])


def reclaiming(
    queues: Sequence[str] | None,
    seconds: float,
    limit: int,
    owner: str,
    of: str | None,
    blind: Sequence[Blind],
    grace: float,
) -> list[Asked]:
    """The statements of a recovery: how many were adopted, what was taken over, when the next lease ends."""
    wanted: Params = {"queues": None if queues is None else list(queues), "limit": limit}
    facts = wanted | {"owner": owner, "lease": milliseconds(seconds)}
    spans = [[milliseconds(span.since), milliseconds(span.until)] for span in blind]
    return [
        Asked("adopt", wanted | {"grace": milliseconds(grace)}),
        Asked("reclaim", facts | {"blind": spans}) if of is None else Asked("reclaim_of", facts | {"of": of}),
        Asked("next_end", wanted),
    ]


async def tick(ask: Ask, schedule: str, slot: datetime, given: New, place: Place) -> bool:
    if not await ask("tick", {"schedule": schedule, "slot": instant(slot)}):
        return False
    await enqueue(ask, given, place)
    return True


def _pause(queue: str, why: str) -> Params:
    return {"queue": queue, "why": why, "details": json_text({"why": why})}


def pausing(queue: str, why: str) -> Params:
    return {"pauses": [_pause(queue, why)]}


def _event(type_: str, ref: Ref, details: Params, place: Place) -> Params:
    return {
        "type": type_,
        "queue": ref.queue,
        "address": place.address(*ref),
        "details": json_text(details),
    }
