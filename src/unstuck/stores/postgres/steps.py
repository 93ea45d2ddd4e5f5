"""What producers, workers and the reaper do. Each step is a generator of queries: it yields what to ask and is sent
what was answered, so that our own connections and those of other people's transactions can carry it out alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from unstuck.model import Beat, Lease, NewJob, Outcome, Ref, Settled, Verdict, Word, Worker
from unstuck.store import Blind, Enqueued, Pulse, Share
from unstuck.stores.postgres import rows
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.rows import Query, Row, json_text
from unstuck.stores.settling import answers, missed, once_each
from unstuck.stores.telling import MANY_PIECES, PROMOTE_AT_ONCE, REMEMBER_WORKERS
from unstuck.stores.values import worker_text

T = TypeVar("T")
Answer = list[Row]
Step = Generator[Query, Answer, T]


def enqueue(
    jobs: Sequence[NewJob], ring: Sequence[str], place: Place, *, fresh: bool = False
) -> Step[list[Enqueued]]:
    """All at once, as nearly always all of them are new; if not, it takes one or two more questions to tell which.

    ``fresh`` means that no address can be taken: it is cheaper, and an error if one is.
    """
    how = {"ring": json_text(ring), "channel": place.channel, "all_events": place.all_events}
    [(count, _, added)] = yield Query("enqueue_fresh" if fresh else "enqueue", rows.new_jobs(jobs) | how)
    if count == len(jobs):
        return [Enqueued(job.queue, job.id, created=True) for job in jobs]
    created = {Ref(*pair) for pair in rows.pairs(added)}
    if again := {Ref(job.queue, job.id): job for job in jobs if job.again and _ref(job) not in created}:
        facts = {"jobs": json_text(list(again.values())), "all_events": place.all_events}
        created |= {Ref(*row) for row in (yield Query("enqueue_again", facts))}
    rest = dict.fromkeys(_ref(job) for job in jobs)
    digests = {
        Ref(queue, id_): digest for queue, id_, digest in (yield Query("enqueue_existing", rows.refs(rest)))
    }
    answers = []
    for job in jobs:
        ref = _ref(job)
        new = ref in created
        created.discard(ref)  # a second one of the same batch met the first
        answers.append(Enqueued(*ref, created=new, same=new or digests.get(ref, job.digest) == job.digest))
    return answers


def _ref(job: NewJob) -> Ref:
    return Ref(job.queue, job.id)


def settle(outcomes: Sequence[Outcome], ring: Sequence[str], place: Place) -> Step[list[Settled]]:
    """End leases that are named once each."""
    completed = Word.COMPLETED
    if all([outcome.word is completed for outcome in outcomes]):  # noqa: C419 - twice as fast as a generator
        [(count, applied)] = yield Query("complete", rows.completions(outcomes, place.all_events))
    else:
        how = {"ring": json_text(ring), "channel": place.channel}
        [(count, applied, _)] = yield Query("settle", rows.endings(outcomes, place.all_events) | how)
    if count == len(outcomes):
        return [Settled.APPLIED] * count
    done = set(rows.numbers(applied))
    lost = [outcome.lease.ref for outcome in missed(outcomes, done)]
    found = yield Query("settled", rows.refs(lost))
    return answers(outcomes, done, {Ref(queue, id_): (fence, word) for queue, id_, fence, word in found})


def settle_all(
    outcomes: Sequence[Outcome], settle: Callable[[Sequence[Outcome]], Step[list[Settled]]], place: Place
) -> Step[list[Settled]]:
    """Any outcomes, with what follows from them: pauses and further jobs. For one transaction.

    ``settle`` ends leases that are named once each.
    """
    became: list[Settled] = []
    for some in once_each(outcomes):
        became += yield from settle(some)
    applied = [outcome for outcome, answer in zip(outcomes, became, strict=True) if answer is Settled.APPLIED]
    for queue, why in {outcome.lease.queue: outcome.pause for outcome in applied if outcome.pause}.items():
        yield Query("pause", {"queue": queue, "why": why})
    if jobs := [job for outcome in applied for job in outcome.then]:
        yield from enqueue(jobs, list(dict.fromkeys(job.queue for job in jobs)), place)
    return became


def lease(queues: Mapping[str, Share], limit: int, owner: str, place: Place) -> list[Query]:
    """The queries of a lease; the last one answers with the jobs. They are one transaction."""
    shares = json_text(
        [
            {
                "queue": queue,
                "seconds": share.seconds,
                "most": min(share.limit, limit),
                "at_a_time": share.at_a_time,
                "per_lane": share.per_lane,
            }
            for queue, share in queues.items()
            if share.limit > 0
        ]
    )
    crowded = [name for name, share in queues.items() if (share.at_a_time, share.per_lane) != (None, None)]
    lanes = any(share.per_lane is not None for share in queues.values())
    facts = {"shares": shares, "limit": limit, "owner": owner, "all_events": place.all_events}
    queries = [Query("crowd", {"queues": json_text(crowded)})] if crowded else []
    queries.append(Query("promote", {"shares": shares, "most": PROMOTE_AT_ONCE}))
    return [*queries, Query("lease_lanes" if lanes else "lease", facts)]


def heartbeat(worker: Worker, beats: Sequence[Beat]) -> Step[Pulse]:
    named = list({beat.lease: beat for beat in beats}.values())
    facts = {"owner": worker.id, "facts": worker_text(worker), "remember": REMEMBER_WORKERS}
    [(renewed, strangers)] = yield Query("heartbeat", facts | {"beats": rows.beats(named)})
    held = {named[place].lease for place in rows.numbers(renewed)}
    verdicts = {beat.lease: Verdict.HELD if beat.lease in held else Verdict.LOST for beat in named}
    if lost := [lease.ref for lease, verdict in verdicts.items() if verdict is Verdict.LOST]:
        ended = yield Query("settled", rows.refs(lost))
        cancelled = {Ref(queue, id_) for queue, id_, _, word in ended if word == Word.CANCELLED}
        verdicts |= {
            lease: Verdict.CANCELLED
            for lease, verdict in verdicts.items()
            if verdict is Verdict.LOST and lease.ref in cancelled
        }
    return Pulse(
        verdicts, [Lease(*lease) for lease in rows.pairs(strangers) if Lease(*lease) not in verdicts]
    )


def reclaim(
    queues: Sequence[str] | None,
    seconds: float,
    limit: int,
    owner: str,
    of: str | None,
    blind: Sequence[Blind],
    grace: float,
    *,
    future: bool,
) -> list[Query]:
    """The queries of a recovery: how many were adopted, what was taken over, when the next lease ends; upkeep."""
    wanted = {"queues": None if queues is None else json_text(queues)}
    facts = wanted | {"limit": limit, "owner": owner, "seconds": seconds}
    spans = json_text([span._asdict() for span in blind])
    return [
        Query("adopt", wanted | {"grace": grace, "limit": limit, "future": future}),
        Query("reclaim", facts | {"blind": spans}) if of is None else Query("reclaim_of", facts | {"of": of}),
        Query("next_end", wanted),
        Query("fold", {"many": MANY_PIECES}),
    ]


def tick(
    schedule: str, slot: datetime, jobs: Sequence[NewJob], ring: Sequence[str], place: Place
) -> Step[bool]:
    """Note the slot and enqueue its jobs, unless it was fired before. For one transaction."""
    if not (yield Query("tick", {"schedule": schedule, "slot": slot})):
        return False
    if jobs:
        yield from enqueue(jobs, ring, place)
    return True
