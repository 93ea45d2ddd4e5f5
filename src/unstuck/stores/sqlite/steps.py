"""The operations of workers, producers and the reaper, each as one step inside a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

import apsw
import msgspec

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Ending, Enqueued, Job, Lease, NewJob, Ref
from unstuck.protocol.leases import (
    ANSWER,
    PASSED_BY,
    Beat,
    HeartbeatAnswer,
    Reclaimed,
    Recovery,
    Share,
    Verdict,
)
from unstuck.protocol.limits import Grant, latest
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.records import Kept
from unstuck.stores.shared import keeping
from unstuck.stores.shared.events import (
    FORGET_AT_ONCE,
    PROMOTE_AT_ONCE,
    REMEMBER_WORKERS,
    UNREADABLE,
    outcome_events,
    reaped,
)
from unstuck.stores.shared.heads import FEW, with_work
from unstuck.stores.shared.settling import answer
from unstuck.stores.shared.spacing import Effect, Standing, effect, existing
from unstuck.stores.shared.values import at, instant, json_text, milliseconds, worker_text
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.writer import Row, Transaction

# Of a job in line: the rank and number that order it, its number and bytes of payload.
_Position = tuple[int, int, int, int]
UNREADABLE_BY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, apsw.SQLError)


def enqueue(tx: Transaction, jobs: Sequence[NewJob], all_events: bool) -> list[Enqueued]:
    """All at once, as nearly always all of them are new; if not, one by one, to find out which."""
    plain = len(jobs) > 1 and not [job for job in jobs if job.key is not None and job.interval]
    if plain and tx.trial(
        lambda: tx.many("enqueue", (rows.new_row(job, tx.now) for job in jobs)) == len(jobs)
    ):
        answers = [Enqueued(job.queue, job.id, created=True) for job in jobs]
    else:
        answers = [_space(tx, job) if job.interval else _enqueue(tx, job) for job in jobs]
    if all_events:
        add_events(tx, [("enqueued", answer.ref, {}) for answer in answers if answer.created])
    return answers


def lease(
    tx: Transaction, queues: Mapping[str, Share], limit: int, owner: str, all_events: bool
) -> list[Job]:
    lines: dict[str, list[_Position]] = {}
    for queue in _with_work(tx, queues):
        tx.change("promote", {"queue": queue, "now": tx.now, "limit": PROMOTE_AT_ONCE})
        if found := _line(tx, queue, queues[queue], min(queues[queue].limit, limit)):
            lines[queue] = found
    if not lines:
        return []
    seqs = _fit([(seq, size) for _, _, seq, size in _in_turn(lines, queues)[:limit]])
    leases = {queue: milliseconds(queues[queue].seconds) for queue in lines}
    tx.change("lease", {"seqs": json_text(seqs), "now": tx.now, "owner": owner, "leases": json_text(leases)})
    jobs = _read(tx, seqs)
    if all_events:
        add_events(tx, [("leased", job.ref, {"fence": job.fence, "owner": owner}) for job in jobs])
    return jobs


def _with_work(tx: Transaction, queues: Mapping[str, Share]) -> Collection[str]:
    """The queues that a lease has to look at: of many only those that have something to look at."""
    if len(queues) <= FEW:
        return queues.keys()
    found = tx.value("heads", most=len(queues), until=tx.now)
    return with_work(queues, found and rows.names(found))


def _in_turn(lines: Mapping[str, list[_Position]], queues: Mapping[str, Share]) -> list[_Position]:
    """The positions of all lines by the turns of their queues; one line is in order as it is."""
    if len(lines) == 1:
        return next(iter(lines.values()))
    stands = [
        (queues[queue].stands(number), place)
        for queue, line in lines.items()
        for number, place in enumerate(line)
    ]
    return [place for _, place in sorted(stands)]


def _line(tx: Transaction, queue: str, share: Share, limit: int) -> list[_Position]:
    """The jobs of a queue that may be leased now: the rank and number they are ordered by, their number and bytes of payload."""
    reach = limit + PASSED_BY
    if share.at_a_time is not None:
        room = share.at_a_time - int(tx.value("running", queue=queue))
        limit, reach = min(limit, room), min(reach, room)
    if limit < 1:
        return []
    if share.per_lane is None:
        if share.only_new:
            return _new(tx, queue, limit, reach)
        found = rows.line(tx.value("line", queue=queue, now=tx.now, limit=limit))
        return [(rank, seq, seq, size) for rank, seq, size in found]
    which = {
        "queue": queue,
        "now": tx.now,
        "limit": limit,
        "per_lane": share.per_lane,
        "only_new": share.only_new,
    }
    turns = rows.turns(tx.value("lanes", **which))
    # The ranks decide how many of this queue are leased among all queues; within the queue the turns decide which.
    ranks = sorted((rank, seq) for _, rank, seq, _ in turns)
    return [(*standing, seq, size) for standing, (_, _, seq, size) in zip(ranks, turns, strict=True)]


def _new(tx: Transaction, queue: str, limit: int, reach: int) -> list[_Position]:
    """Those of the first ``reach`` jobs in line that were never leased. They are read row by row: in the file, the columns of
    the last lease follow the payload, so the bytes of payload that are skipped are bounded, too."""
    found: list[_Position] = []
    bytes_ = 0
    for rank, seq, size, new in tx.each("line_new", queue=queue, now=tx.now, reach=reach):
        if new:
            found.append((rank, seq, seq, size))
        bytes_ += size
        if len(found) == limit or bytes_ >= ANSWER:
            break
    return found


def _fit(found: Sequence[Row]) -> list[int]:
    """The numbers of the first jobs, as many as one answer carries; each is given with its bytes of payload."""
    before = accumulate((size for _, size in found), initial=0)
    return [seq for (seq, _), bytes_ in zip(found, before, strict=False) if bytes_ < ANSWER]


def heartbeat(tx: Transaction, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
    tx.change("seen", {"id": worker.id, "now": tx.now, "facts": worker_text(worker)})
    tx.change("forget_workers", {"before": tx.now - milliseconds(REMEMBER_WORKERS)})
    verdicts = dict.fromkeys((beat.lease for beat in beats), Verdict.HELD)
    if _beat(tx, beats) < len(verdicts):
        verdicts = {beat.lease: _verdict(tx, beat) for beat in beats}
    held = (Lease(*row) for row in tx.rows("held_by", owner=worker.id))
    return HeartbeatAnswer(verdicts, [lease for lease in held if lease not in verdicts])


def settle(tx: Transaction, outcomes: Sequence[Outcome], all_events: bool) -> list[Settled]:
    """All in one statement, as nearly always all of them apply; if not, one by one, to find out which."""
    if len(outcomes) > 1 and tx.trial(lambda: _end(tx, outcomes) == len(outcomes)):
        answers = [Settled.APPLIED] * len(outcomes)
    else:
        answers = [_settle(tx, outcome) for outcome in outcomes]
    applied = [
        outcome for outcome, answer in zip(outcomes, answers, strict=True) if answer is Settled.APPLIED
    ]
    _follow_up(tx, applied, all_events)
    return answers


def _follow_up(tx: Transaction, applied: Sequence[Outcome], all_events: bool) -> None:
    """What is written with the change itself: events, counters and follow-up jobs."""
    add_events(
        tx,
        [
            (type_, applied[index].lease.ref, details)
            for index, type_, details in outcome_events(applied, all_events)
        ],
    )
    _tally(tx, applied)
    for queue, why in {outcome.lease.queue: outcome.pause for outcome in applied if outcome.pause}.items():
        pause(tx, queue, why)
    for queue, why in {outcome.lease.queue: outcome.halt for outcome in applied if outcome.halt}.items():
        _halt(tx, queue, why)
    if jobs := [job for outcome in applied for job in outcome.then]:
        enqueue(tx, jobs, all_events)


def reclaim(tx: Transaction, recovery: Recovery) -> Reclaimed:
    wanted, limit = json_text(recovery.queues), recovery.limit
    adopted = tx.rows("adopt", queues=wanted, now=tx.now, grace=milliseconds(recovery.grace), limit=limit)
    add_events(
        tx, [("reaper:adopted", Ref(queue, id_), {"owner": held_by}) for queue, id_, held_by in adopted]
    )
    if recovery.of is not None:
        found = tx.rows("orphaned", of=json_text(recovery.of), queues=wanted, limit=limit)
    else:
        then = tx.now if recovery.as_of is None else min(tx.now, instant(recovery.as_of))
        spans = [
            (then - milliseconds(span.since), then - milliseconds(span.until)) for span in recovery.blind
        ]
        found = tx.rows("lapsed", then=then, queues=wanted, blind=json_text(spans), limit=limit)
        found += tx.rows("expired", now=tx.now, queues=wanted, limit=limit - len(found))
    lapsed = _read(tx, _fit(found))
    jobs = [_take_over(tx, job, recovery) for job in lapsed]
    [(end,)] = tx.rows("next_end", now=tx.now, queues=wanted)
    tx.change("forget_spacing", {"now": tx.now, "limit": FORGET_AT_ONCE})
    return Reclaimed(jobs, len(adopted), None if end is None else max(0.0, (end - tx.now) / 1000))


def take(tx: Transaction, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
    if tx.rows("closed", bucket=bucket, now=tx.now):
        return standing(tx, bucket)
    tx.change("take_free", {"bucket": bucket, "now": tx.now})
    free_at = tx.now + milliseconds(interval)
    ahead = {"bucket": bucket, "free_at": free_at, "latest": tx.now + milliseconds(latest(interval))}
    tx.change("take_ahead", ahead)
    [(used, first)] = tx.rows("take_used", bucket=bucket)
    granted = max(0, min(wanted, capacity - used))
    tx.many("take", [(bucket, free_at)] * granted)
    first_back = (min(first or free_at, free_at) - tx.now) / 1000
    return Grant(granted, free_at, used + granted, first_back)


def standing(tx: Transaction, bucket: str) -> Grant:
    """The state of a bucket; no token is taken."""
    tokens = [free_at - tx.now for (free_at,) in tx.rows("bucket", bucket=bucket, now=tx.now)]
    closed = tx.rows("closed", bucket=bucket, now=tx.now)
    return Grant(
        out=len(tokens),
        first_back=min(tokens, default=0) / 1000,
        closed_for=(closed[0][0] - tx.now) / 1000 if closed else 0.0,
    )


def give_back(tx: Transaction, bucket: str, count: int, stamp: int, close_for: float) -> None:
    if count > 0:
        tx.change("give_back", {"bucket": bucket, "count": count, "stamp": stamp})
    if close_for > 0:
        tx.change("close", {"bucket": bucket, "until": tx.now + milliseconds(close_for)})


def tick(
    tx: Transaction,
    schedule: str,
    slot: datetime | None,
    jobs: Sequence[NewJob],
    instead_of: datetime | None,
    all_events: bool,
) -> bool:
    if slot is None:
        return bool(tx.change("tick_none", {"schedule": schedule}))
    ahead = None if instead_of is None else instant(instead_of)
    if not tx.change("tick", {"schedule": schedule, "slot": instant(slot), "instead_of": ahead}):
        return False
    enqueue(tx, jobs, all_events)
    return True


def keep(tx: Transaction, change: keeping.Change) -> Kept:
    tx.change("keep_none" if change.value is None else "keep", change.params | {"now": tx.now})
    found = tx.rows("kept_one", kind=change.kind, record=change.record)
    return keeping.answer(change, (found[0][0], found[0][1], at(found[0][2])) if found else None)


def pause(tx: Transaction, queue: str, why: str) -> None:
    tx.change("pause", {"queue": queue, "now": tx.now, "why": why})
    add_queue_event(tx, "paused", queue, {"why": why})


def _halt(tx: Transaction, queue: str, why: str) -> None:
    tx.change("halt", {"queue": queue, "now": tx.now, "why": why})
    add_queue_event(tx, "paused", queue, {"why": why})


def _read(tx: Transaction, seqs: Sequence[int]) -> list[Job]:
    """The jobs with these numbers. One that cannot be read, because somebody edited it, is put aside."""
    try:
        return rows.jobs(tx.value("read", seqs=json_text(seqs)))
    except UNREADABLE_BY as error:
        if len(seqs) > 1:
            return [job for seq in seqs for job in _read(tx, [seq])]
        _put_aside(tx, seqs[0], str(error))
        return []


def _put_aside(tx: Transaction, seq: int, why: str) -> None:
    where = {"seq": seq, "now": tx.now}
    for garbled in (False, True):  # kept as text, or, if it is not valid text, as hexadecimal digits
        tx.change("quarantine", where | {"error": rows.error_text(UNREADABLE, tx.now), "garbled": garbled})
        try:
            rows.jobs(tx.value("read", seqs=json_text([seq])))
            break
        except UNREADABLE_BY:
            continue
    tx.change("log_quarantined", where | {"details": json_text({"why": why})})


def _enqueue(tx: Transaction, job: NewJob) -> Enqueued:
    row = rows.new_row(job, tx.now)
    if tx.change("enqueue", row):
        return Enqueued(job.queue, job.id, created=True)
    if job.again and tx.change("enqueue_again", dict(zip(rows.NEW_COLUMNS, row, strict=True))):
        return Enqueued(job.queue, job.id, created=True)
    [(digest,)] = tx.rows("enqueue_existing", id=job.id, queue=job.queue)
    return Enqueued(job.queue, job.id, created=False, same=digest == job.digest)


def _space(tx: Transaction, job: NewJob) -> Enqueued:
    where = {"queue": job.queue, "key": job.key}
    found = tx.rows("enqueue_standing", now=tx.now, id=job.id, **where)
    standing = Standing(*found[0]) if found else None
    done = effect(job, standing)
    if standing is None or done is Effect.ADDED:
        if not (answer := _enqueue(tx, job)).created:  # enqueued before, and the answer was lost
            return answer
    else:
        answer = existing(job, standing)
        if done is Effect.DROPPED:
            return answer
        row = dict(zip(rows.NEW_COLUMNS, rows.new_row(job, tx.now), strict=True))
        tx.change("enqueue_instead", row | {"id": answer.id})
    tx.change("enqueue_space", where | {"job": answer.id, "until": tx.now + milliseconds(job.interval)})
    return answer


def _beat(tx: Transaction, beats: Sequence[Beat]) -> int:
    """How many of the leases were renewed."""
    if not beats:
        return 0
    return tx.change(
        "heartbeat", {"beats": json_text([rows.beat_facts(beat) for beat in beats]), "now": tx.now}
    )


def _verdict(tx: Transaction, beat: Beat) -> Verdict:
    if _beat(tx, [beat]):
        return Verdict.HELD
    ended = tx.rows("settled", id=beat.lease.id, queue=beat.lease.queue)
    return Verdict.CANCELLED if ended and ended[0][1] == Ending.CANCELLED else Verdict.LOST


def _end(tx: Transaction, outcomes: Sequence[Outcome]) -> int:
    """How many of the leases were ended."""
    if all(outcome.ending is Ending.COMPLETED for outcome in outcomes):
        done = [(*outcome.lease, json_text(outcome.result)) for outcome in outcomes]
        return tx.change("complete", {"outcomes": json_text(done), "now": tx.now})
    facts = json_text([rows.outcome_facts(outcome, tx.now) for outcome in outcomes])
    return tx.change("settle", {"outcomes": facts, "now": tx.now})


def _settle(tx: Transaction, outcome: Outcome) -> Settled:
    if _end(tx, [outcome]):
        return Settled.APPLIED
    ended = tx.rows("settled", id=outcome.lease.id, queue=outcome.lease.queue)
    return answer(outcome, ended[0] if ended else None)


def _take_over(tx: Transaction, job: Job, recovery: Recovery) -> Job:
    facts = {"now": tx.now, "owner": recovery.owner, "lease": milliseconds(recovery.seconds)}
    [(fence,)] = tx.rows("reclaim", id=job.id, queue=job.queue, **facts)
    return msgspec.structs.replace(job, fence=fence)


def add_events(tx: Transaction, events: Sequence[tuple[str, Ref, dict[str, Any]]]) -> None:
    if events:
        tx.many("log_events", [_event_row(tx.now, *event) for event in events])


def add_queue_event(tx: Transaction, type_: str, queue: str, details: dict[str, str]) -> None:
    tx.change("log_events", (tx.now, type_, queue, None, json_text(details)))


def _event_row(now: int, type_: str, ref: Ref, details: dict[str, Any]) -> Row:
    return (now, type_, ref.queue, ref.id, json_text(details))


def _tally(tx: Transaction, outcomes: Sequence[Outcome]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        counts[outcome.lease.queue, str(outcome.ending)] += 1
        if outcome.crashed:
            counts[outcome.lease.queue, "crashed"] += 1
        if name := reaped(outcome):
            counts[outcome.lease.queue, name] += 1
    if counts:
        tx.many("tally", [(queue, name, count) for (queue, name), count in counts.items()])
