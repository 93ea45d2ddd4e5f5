"""What workers, producers and the reaper do, each as one step inside a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from unstuck.model import Beat, Job, Lease, NewJob, Outcome, Ref, Settled, Verdict, Word, Worker
from unstuck.store import Blind, Enqueued, Pulse, Reclaimed, Share
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.writer import Row, Transaction
from unstuck.stores.telling import PROMOTE_AT_ONCE, REMEMBER_WORKERS, UNREADABLE, reaped, told
from unstuck.stores.values import instant, json_text, milliseconds, worker_text
from unstuck.tokens import Grant

UNREADABLE_BY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, apsw.SQLError)


def enqueue(tx: Transaction, jobs: Sequence[NewJob], all_events: bool) -> list[Enqueued]:
    """All at once, as nearly always all of them are new; if not, one by one, to tell which."""
    if len(jobs) > 1 and tx.trial(
        lambda: tx.many("enqueue", (rows.new_row(job, tx.now) for job in jobs)) == len(jobs)
    ):
        answers = [Enqueued(job.queue, job.id, created=True) for job in jobs]
    else:
        answers = [_enqueue(tx, job) for job in jobs]
    if all_events:
        tell(tx, [("enqueued", answer.ref, {}) for answer in answers if answer.created])
    return answers


def lease(
    tx: Transaction, queues: Mapping[str, Share], limit: int, owner: str, all_events: bool
) -> list[Job]:
    line: list[tuple[int, int, int]] = []
    for queue, share in queues.items():
        tx.change("promote", {"queue": queue, "now": tx.now, "limit": PROMOTE_AT_ONCE})
        line += _line(tx, queue, share, min(share.limit, limit))
    if not line:
        return []
    seqs = [seq for _, _, seq in sorted(line)[:limit]]
    leases = json_text({queue: milliseconds(share.seconds) for queue, share in queues.items()})
    tx.change("lease", {"seqs": json_text(seqs), "now": tx.now, "owner": owner, "leases": leases})
    jobs = _read(tx, seqs)
    if all_events:
        tell(tx, [("leased", job.ref, {"fence": job.fence, "owner": owner}) for job in jobs])
    return jobs


def _line(tx: Transaction, queue: str, share: Share, limit: int) -> list[tuple[int, int, int]]:
    """The jobs of a queue that may be leased now: each one's number, behind the rank and number it stands at."""
    if share.at_a_time is not None:
        limit = min(limit, share.at_a_time - int(tx.value("running", queue=queue)))
    if limit < 1:
        return []
    if share.per_lane is None:
        return [(rank, seq, seq) for rank, seq in rows.line(tx.value("line", queue=queue, limit=limit))]
    turns = rows.turns(tx.value("lanes", queue=queue, limit=limit, per_lane=share.per_lane))
    # Among queues the places decide how many of this one are leased, within it the turns decide which.
    places = sorted((rank, seq) for _, rank, seq in turns)
    return [(*place, seq) for place, (_, _, seq) in zip(places, turns, strict=True)]


def heartbeat(tx: Transaction, worker: Worker, beats: Sequence[Beat]) -> Pulse:
    tx.change("seen", {"id": worker.id, "now": tx.now, "facts": worker_text(worker)})
    tx.change("forget_workers", {"before": tx.now - milliseconds(REMEMBER_WORKERS)})
    verdicts = dict.fromkeys((beat.lease for beat in beats), Verdict.HELD)
    if _beat(tx, beats) < len(verdicts):
        verdicts = {beat.lease: _verdict(tx, beat) for beat in beats}
    held = (Lease(*row) for row in tx.rows("held_by", owner=worker.id))
    return Pulse(verdicts, [lease for lease in held if lease not in verdicts])


def settle(tx: Transaction, outcomes: Sequence[Outcome], all_events: bool) -> list[Settled]:
    """All in one statement, as nearly always all of them apply; if not, one by one, to tell which."""
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
    tell(
        tx,
        [(type_, applied[place].lease.ref, details) for place, type_, details in told(applied, all_events)],
    )
    _tally(tx, applied)
    for queue, why in {outcome.lease.queue: outcome.pause for outcome in applied if outcome.pause}.items():
        pause(tx, queue, why)
    if jobs := [job for outcome in applied for job in outcome.then]:
        enqueue(tx, jobs, all_events)


def reclaim(
    tx: Transaction,
    queues: Sequence[str] | None,
    seconds: float,
    limit: int,
    owner: str,
    of: str | None,
    blind: Sequence[Blind],
    grace: float,
) -> Reclaimed:
    wanted = json_text(queues)
    adopted = tx.rows("adopt", queues=wanted, now=tx.now, grace=milliseconds(grace), limit=limit)
    tell(tx, [("reaper:adopted", Ref(queue, id_), {"owner": held_by}) for queue, id_, held_by in adopted])
    if of is not None:
        found = tx.rows("orphaned", of=of, queues=wanted, limit=limit)
    else:
        spans = [(tx.now - milliseconds(span.since), tx.now - milliseconds(span.until)) for span in blind]
        found = tx.rows("lapsed", now=tx.now, queues=wanted, blind=json_text(spans), limit=limit)
    lapsed = _read(tx, [seq for (seq,) in found])
    jobs = [_take_over(tx, job, owner, milliseconds(seconds)) for job in lapsed]
    [(end,)] = tx.rows("next_end", now=tx.now, queues=wanted)
    return Reclaimed(jobs, len(adopted), None if end is None else max(0.0, (end - tx.now) / 1000))


def take(tx: Transaction, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
    if closed := tx.rows("closed", bucket=bucket, now=tx.now):
        return Grant(0, (closed[0][0] - tx.now) / 1000)
    tx.change("take_free", {"bucket": bucket, "now": tx.now})
    [(used, first)] = tx.rows("take_used", bucket=bucket)
    granted = max(0, min(wanted, capacity - used))
    free_at = tx.now + milliseconds(interval)
    tx.many("take", [(bucket, free_at)] * granted)
    wait = 0.0 if granted == wanted else ((first - tx.now) / 1000 if first is not None else interval)
    return Grant(granted, wait, free_at)


def tick(tx: Transaction, schedule: str, slot: datetime, jobs: Sequence[NewJob], all_events: bool) -> bool:
    if not tx.change("tick", {"schedule": schedule, "slot": instant(slot)}):
        return False
    enqueue(tx, jobs, all_events)
    return True


def pause(tx: Transaction, queue: str, why: str) -> None:
    tx.change("pause", {"queue": queue, "now": tx.now, "why": why})
    tell_queue(tx, "paused", queue, {"why": why})


def _read(tx: Transaction, seqs: Sequence[int]) -> list[Job]:
    """The jobs of these numbers. One that cannot be read, because somebody edited it, is put aside."""
    try:
        return rows.jobs(tx.value("read", seqs=json_text(seqs)))
    except UNREADABLE_BY as error:
        if len(seqs) > 1:
            return [job for seq in seqs for job in _read(tx, [seq])]
        _put_aside(tx, seqs[0], str(error))
        return []


def _put_aside(tx: Transaction, seq: int, why: str) -> None:
    where = {"seq": seq, "now": tx.now}
    for garbled in (False, True):  # kept as text, or, if it is none, as hexadecimal digits
        tx.change("quarantine", where | {"error": rows.error_text(UNREADABLE, tx.now), "garbled": garbled})
        try:
            rows.jobs(tx.value("read", seqs=json_text([seq])))
            break
        except UNREADABLE_BY:
            continue
    tx.change("tell_quarantined", where | {"details": json_text({"why": why})})


def _enqueue(tx: Transaction, job: NewJob) -> Enqueued:
    row = rows.new_row(job, tx.now)
    if tx.change("enqueue", row):
        return Enqueued(job.queue, job.id, created=True)
    if job.again and tx.change("enqueue_again", dict(zip(rows.NEW_COLUMNS, row, strict=True))):
        return Enqueued(job.queue, job.id, created=True)
    [(digest,)] = tx.rows("enqueue_existing", id=job.id, queue=job.queue)
    return Enqueued(job.queue, job.id, created=False, same=digest == job.digest)


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
    return Verdict.CANCELLED if ended and ended[0][1] == Word.CANCELLED else Verdict.LOST


def _end(tx: Transaction, outcomes: Sequence[Outcome]) -> int:
    """How many of the leases were ended."""
    if all(outcome.word is Word.COMPLETED for outcome in outcomes):
        done = [(*outcome.lease, json_text(outcome.result)) for outcome in outcomes]
        return tx.change("complete", {"outcomes": json_text(done), "now": tx.now})
    facts = json_text([rows.outcome_facts(outcome, tx.now) for outcome in outcomes])
    return tx.change("settle", {"outcomes": facts, "now": tx.now})


def _settle(tx: Transaction, outcome: Outcome) -> Settled:
    if _end(tx, [outcome]):
        return Settled.APPLIED
    ended = tx.rows("settled", id=outcome.lease.id, queue=outcome.lease.queue)
    return Settled.REPEATED if ended == [(outcome.lease.fence, outcome.word)] else Settled.LOST


def _take_over(tx: Transaction, job: Job, owner: str, lease_ms: int) -> Job:
    [(fence,)] = tx.rows("reclaim", id=job.id, queue=job.queue, now=tx.now, owner=owner, lease=lease_ms)
    return msgspec.structs.replace(job, fence=fence)


def tell(tx: Transaction, events: Sequence[tuple[str, Ref, dict[str, Any]]]) -> None:
    if events:
        tx.many("tell", [_event_row(tx.now, *event) for event in events])


def tell_queue(tx: Transaction, type_: str, queue: str, details: dict[str, str]) -> None:
    tx.change("tell", (tx.now, type_, queue, None, json_text(details)))


def _event_row(now: int, type_: str, ref: Ref, details: dict[str, Any]) -> Row:
    return (now, type_, ref.queue, ref.id, json_text(details))


def _tally(tx: Transaction, outcomes: Sequence[Outcome]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        counts[outcome.lease.queue, str(outcome.word)] += 1
        if outcome.crashed:
            counts[outcome.lease.queue, "crashed"] += 1
        if name := reaped(outcome):
            counts[outcome.lease.queue, name] += 1
    if counts:
        tx.many("tally", [(queue, name, count) for (queue, name), count in counts.items()])
