"""The operations of producers, workers and the reaper. Each step is a generator: it yields queries and is sent their
answers, so that it runs on our own connections and on those of callers alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from msgspec import structs

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Ending, Enqueued, Lease, NewJob, Ref
from unstuck.protocol.leases import ANSWER, PASSED_BY, Beat, HeartbeatAnswer, Recovery, Share, Verdict
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.stores.postgres import rows
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.rows import Query, Row, json_text
from unstuck.stores.shared.events import FORGET_AT_ONCE, MANY_PIECES, PROMOTE_AT_ONCE, REMEMBER_WORKERS
from unstuck.stores.shared.settling import answers, missed, once_each
from unstuck.stores.shared.spacing import Effect, Standing, effect, existing
from unstuck.stores.shared.values import worker_text

T = TypeVar("T")
Answer = list[Row]
Step = Generator[Query, Answer, T]


def enqueue(
    jobs: Sequence[NewJob], notify: Sequence[str], address: Address, *, fresh: bool = False
) -> Step[list[Enqueued]]:
    """All at once, as nearly always all of them are new; if not, one or two more queries find out which.

    ``fresh`` means that none of the jobs can exist: it is cheaper, and an error if one does. Where some are spaced, all
    queries are one transaction.
    """
    if not fresh and any(job.key and job.interval for job in jobs):
        return (yield from _enqueue_spaced(jobs, notify, address))
    how = {"notify": json_text(notify), "channel": address.channel, "all_events": address.all_events}
    [(count, _, added)] = yield Query("enqueue_fresh" if fresh else "enqueue", rows.new_jobs(jobs) | how)
    if count == len(jobs):
        return [Enqueued(job.queue, job.id, created=True) for job in jobs]
    created = {Ref(*pair) for pair in rows.pairs(added)}
    if again := {Ref(job.queue, job.id): job for job in jobs if job.again and _ref(job) not in created}:
        facts = {"jobs": rows.over(again.values()), "all_events": address.all_events}
        created |= {Ref(*row) for row in (yield Query("enqueue_again", facts))}
    rest = dict.fromkeys(_ref(job) for job in jobs)
    digests = {
        Ref(queue, id_): digest for queue, id_, digest in (yield Query("enqueue_existing", rows.refs(rest)))
    }
    answers = []
    for job in jobs:
        ref = _ref(job)
        new = ref in created
        created.discard(ref)  # a second job with this ref in the batch is not new
        answers.append(Enqueued(*ref, created=new, same=new or digests.get(ref, job.digest) == job.digest))
    return answers


def _ref(job: NewJob) -> Ref:
    return Ref(job.queue, job.id)


def _enqueue_spaced(jobs: Sequence[NewJob], notify: Sequence[str], address: Address) -> Step[list[Enqueued]]:
    """In the order given: that is the order of equals in line.

    The keys are locked first, in one order, also those of jobs that are not spaced: several statements add them.
    """
    keys = dict.fromkeys((job.queue, job.key) for job in jobs if job.key)
    yield Query(
        "enqueue_lock",
        {"queue": json_text([queue for queue, _ in keys]), "key": json_text([key for _, key in keys])},
    )
    answers: list[Enqueued] = []
    for spaced, some in groupby(jobs, key=lambda job: job.interval > 0):
        if not spaced:
            answers += yield from enqueue(list(some), notify, address)
            continue
        for job in some:
            answers.append((yield from _space(job, notify, address)))
    return answers


def _space(job: NewJob, notify: Sequence[str], address: Address) -> Step[Enqueued]:
    where = {"queue": job.queue, "key": job.key}
    found = yield Query("enqueue_standing", where | {"id": job.id, "replaces": job.debounce is not None})
    standing = Standing(*found[0]) if found else None
    done = effect(job, standing)
    if standing is None or done is Effect.ADDED:
        plain = structs.replace(job, debounce=None, throttle=None)
        [answer] = yield from enqueue([plain], notify, address)
        if not answer.created:  # enqueued before, and the answer was lost
            return answer
    else:
        answer = existing(job, standing)
        if done is Effect.DROPPED:
            return answer
        yield Query("enqueue_instead", {"jobs": rows.over([job]), "queue": job.queue, "id": answer.id})
    yield Query("enqueue_space", where | {"id": answer.id, "seconds": job.interval})
    return answer


def settle(outcomes: Sequence[Outcome], notify: Sequence[str], address: Address) -> Step[list[Settled]]:
    """End leases, each of which is named once."""
    completed = Ending.COMPLETED
    if all([outcome.ending is completed for outcome in outcomes]):  # noqa: C419 - twice as fast as a generator
        [(count, applied)] = yield Query("complete", rows.completions(outcomes, address.all_events))
    else:
        how = {"notify": json_text(notify), "channel": address.channel}
        [(count, applied, _)] = yield Query("settle", rows.endings(outcomes, address.all_events) | how)
    if count == len(outcomes):
        return [Settled.APPLIED] * count
    done = set(rows.numbers(applied))
    lost = [outcome.lease.ref for outcome in missed(outcomes, done)]
    found = yield Query("settled", rows.refs(lost))
    return answers(outcomes, done, {Ref(queue, id_): (fence, word) for queue, id_, fence, word in found})


def settle_all(
    outcomes: Sequence[Outcome], settle: Callable[[Sequence[Outcome]], Step[list[Settled]]], address: Address
) -> Step[list[Settled]]:
    """Any outcomes, with what follows from them: pauses, halts and further jobs. For one transaction.

    ``settle`` ends leases, each of which is named once.
    """
    became: list[Settled] = []
    for some in once_each(outcomes):
        became += yield from settle(some)
    applied = [outcome for outcome, answer in zip(outcomes, became, strict=True) if answer is Settled.APPLIED]
    for queue, why in {outcome.lease.queue: outcome.pause for outcome in applied if outcome.pause}.items():
        yield Query("pause", {"queue": queue, "why": why})
    for queue, why in {outcome.lease.queue: outcome.halt for outcome in applied if outcome.halt}.items():
        yield Query("halt", {"queue": queue, "why": why})
    if jobs := [job for outcome in applied for job in outcome.then]:
        yield from enqueue(jobs, list(dict.fromkeys(job.queue for job in jobs)), address)
    return became


def lease(queues: Mapping[str, Share], limit: int, owner: str, address: Address) -> list[Query]:
    """The queries of a lease, for one transaction; the last one returns the jobs."""
    shares = json_text(
        [
            {
                "queue": queue,
                "seconds": share.seconds,
                "most": min(share.limit, limit),
                "at_a_time": share.at_a_time,
                "per_lane": share.per_lane,
                "only_new": share.only_new,
                "turn": share.turn,
                "step": share.step,
            }
            for queue, share in queues.items()
            if share.limit > 0
        ]
    )
    crowded = [name for name, share in queues.items() if (share.at_a_time, share.per_lane) != (None, None)]
    lanes = any(share.per_lane is not None for share in queues.values())
    facts = {"shares": shares, "limit": limit, "owner": owner, "all_events": address.all_events}
    facts |= {"bytes": ANSWER, "passed_by": PASSED_BY}
    queries = [Query("crowd", {"queues": json_text(crowded)})] if crowded else []
    queries.append(Query("promote", {"shares": shares, "most": PROMOTE_AT_ONCE}))
    return [
        *queries,
        Query("lease_lanes" if lanes else "lease_of_one" if len(queues) == 1 else "lease", facts),
    ]


def heartbeat(worker: WorkerInfo, beats: Sequence[Beat]) -> Step[HeartbeatAnswer]:
    named = list({beat.lease: beat for beat in beats}.values())
    facts = {"owner": worker.id, "facts": worker_text(worker), "remember": REMEMBER_WORKERS}
    [(renewed, strangers)] = yield Query("heartbeat", facts | {"beats": rows.beats(named)})
    held = {named[index].lease for index in rows.numbers(renewed)}
    verdicts = {beat.lease: Verdict.HELD if beat.lease in held else Verdict.LOST for beat in named}
    if lost := [lease.ref for lease, verdict in verdicts.items() if verdict is Verdict.LOST]:
        ended = yield Query("settled", rows.refs(lost))
        cancelled = {Ref(queue, id_) for queue, id_, _, word in ended if word == Ending.CANCELLED}
        verdicts |= {
            lease: Verdict.CANCELLED
            for lease, verdict in verdicts.items()
            if verdict is Verdict.LOST and lease.ref in cancelled
        }
    return HeartbeatAnswer(
        verdicts, [Lease(*lease) for lease in rows.pairs(strangers) if Lease(*lease) not in verdicts]
    )


def reclaim(recovery: Recovery, *, future: bool) -> list[Query]:
    """The queries of a recovery: how many were adopted, what was taken over, when the next lease ends; upkeep."""
    wanted = {"queues": None if recovery.queues is None else json_text(recovery.queues)}
    few = wanted | {"limit": recovery.limit}
    facts = few | {"owner": recovery.owner, "seconds": recovery.seconds, "bytes": ANSWER}
    spans = json_text([span._asdict() for span in recovery.blind])
    return [
        Query("adopt", few | {"grace": recovery.grace, "future": future}),
        Query("reclaim", facts | {"blind": spans, "as_of": recovery.as_of})
        if recovery.of is None
        else Query("reclaim_of", facts | {"of": list(recovery.of)}),
        Query("next_end", wanted),
        Query("fold", {"many": MANY_PIECES}),
        Query("forget_spacing", {"limit": FORGET_AT_ONCE}),
    ]


def tick(
    schedule: str,
    slot: datetime | None,
    jobs: Sequence[NewJob],
    notify: Sequence[str],
    address: Address,
    instead_of: datetime | None,
) -> Step[bool]:
    """Record the slot and enqueue its jobs, unless it was fired before. For one transaction."""
    if slot is None:
        return bool((yield Query("tick_none", {"schedule": schedule})))
    if not (yield Query("tick", {"schedule": schedule, "slot": slot, "instead_of": instead_of})):
        return False
    if jobs:
        yield from enqueue(jobs, notify, address)
    return True
