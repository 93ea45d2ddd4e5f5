"""Health: what one worker knows of itself, and what the workers and the queues add up to."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock

from msgspec import Struct

from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.job import Job
from unstuck.protocol.operators import Counts

log = logging.getLogger("unstuck.health")

HEALTHY, DEGRADED, CRITICAL = "HEALTHY", "DEGRADED", "CRITICAL"
TOO_MANY = 5  # failures in a row that make a worker DEGRADED
WORTH_TELLING = 3  # failures in a row after which a success is worth a line in the log
REMEMBERED = 100  # outcomes that the success rate and the patterns are made of
PATTERNS = 10
REASONS = 10
REPORT_EVERY = 60.0  # seconds
IDLE = 30.0  # seconds without an answer to "is there work?" that make a worker DEGRADED
WORKER_SILENT = 60.0  # seconds after which a worker no longer counts as one that could take a job
HEARD_EVERY = WORKER_SILENT / 3  # seconds after which it beats at the latest, however long its leases are


class WorkerHealth:
    """One worker's own account of how it fares. Any thread may read and update it."""

    def __init__(self, worker: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._clock = clock
        self._lock = Lock()
        # The code of a failure, None for a success.
        self._outcomes: deque[str | None] = deque(maxlen=REMEMBERED)
        self._in_a_row = 0
        self._succeeded: float | None = None
        self._halted = ""
        self._recovery = True
        self._consumed = self._reported = clock()
        self._done = [0, 0]  # successes and failures since the last report

    def success(self, count: int = 1) -> None:
        with self._lock:
            before, self._in_a_row = self._in_a_row, 0
            self._succeeded = time.time()
            self._outcomes.extend([None] * min(count, REMEMBERED))
            self._done[0] += count
        if before >= WORTH_TELLING:
            self._log(logging.INFO, f"recovered: a job succeeded after {before} failures in a row", before)

    def failure(self, code: str) -> None:
        """An attempt did not succeed, whatever becomes of its job."""
        with self._lock:
            self._in_a_row = count = self._in_a_row + 1
            self._outcomes.append(code)
            self._done[1] += 1
        if count == TOO_MANY:
            self._log(logging.WARNING, f"{count} failures in a row, the last one {code}: DEGRADED", count)

    def halt(self, why: str) -> None:
        """A CRITICAL error: this process will not work again."""
        with self._lock:
            first, self._halted = not self._halted, self._halted or why or "no reason was given"
            count = self._in_a_row
        if first:
            self._log(logging.CRITICAL, f"halted until resumed by hand: {why}", count)

    def recovery(self, on: bool) -> None:
        """Whether this worker's reaper runs."""
        self._recovery = on

    def consuming(self) -> None:
        """The store answered when it was asked for work, be there any or not."""
        self._consumed = self._clock()

    def health(self, *, full: bool = False) -> Health:
        """``full`` says that the worker has no room: it need not ask for work to be consuming."""
        if full:
            self.consuming()
        with self._lock:
            outcomes, count, succeeded = tuple(self._outcomes), self._in_a_row, self._succeeded
        idle = self._clock() - self._consumed
        why = [
            *([f"halted: {self._halted}"] if self._halted else []),
            *([f"{count} failures in a row"] if count >= TOO_MANY else []),
            *(["recovery is off"] if not self._recovery else []),
            *([f"no answer to a request for work for {idle:.0f} s"] if idle >= IDLE else []),
        ]
        codes = Counter(code for code in outcomes if code is not None)
        return Health(
            status=CRITICAL if self._halted else DEGRADED if why else HEALTHY,
            why="; ".join(why),
            consecutive_failures=count,
            successes=outcomes.count(None),
            failures=codes.total(),
            last_success=None if succeeded is None else datetime.fromtimestamp(succeeded, UTC),
            patterns=dict(codes.most_common(PATTERNS)) if why else {},
            consuming=idle < IDLE and not self._halted,
            recovering=self._recovery,
        )

    def report(self) -> None:
        """Log what was done since the last report, if that is a minute ago and there is anything to say."""
        with self._lock:
            seconds = self._clock() - self._reported
            if seconds < REPORT_EVERY or not any(self._done):
                return
            (successes, failures), self._done = self._done, [0, 0]
            self._reported += seconds
        health = self.health()
        log.info(
            "%d jobs succeeded and %d attempts failed in %.0f s",
            successes,
            failures,
            seconds,
            extra={
                "workerId": self._worker,
                "succeeded": successes,
                "failed": failures,
                "seconds": round(seconds, 3),
                "status": health.status,
                "consecutiveFailures": health.consecutive_failures,
            },
        )

    def _log(self, level: int, message: str, count: int) -> None:
        log.log(level, message, extra={"workerId": self._worker, "consecutiveFailures": count})


class HealthStatus(Struct, frozen=True, kw_only=True):
    """The worst of all that is known. ``success_rate`` is None while nothing has ended yet.

    ``consuming`` is true when somebody takes jobs, and no queue with due jobs lacks a taker.
    """

    status: str
    why: str
    consecutive_failures: int
    success_rate: float | None
    last_success: datetime | None
    patterns: Mapping[str, int]
    workers: int
    consuming: bool

    @property
    def healthy(self) -> bool:
        return self.status == HEALTHY


def alive(workers: Iterable[WorkerInfo], now: datetime) -> list[WorkerInfo]:
    """Those whose last heartbeat is recent enough to count on them, and that have not ended."""
    return [
        worker
        for worker in workers
        if not worker.left
        and worker.seen_at is not None
        and (now - worker.seen_at).total_seconds() < WORKER_SILENT
    ]


def abandoned(job: Job, living: Iterable[WorkerInfo], now: datetime) -> bool:
    """Whether the lease of a running job lasts, and nobody who is alive renews it."""
    if any(worker.id == job.owner for worker in living):
        return False
    if job.lease_until is None:
        since = job.started_at
    elif job.lease_until <= now or job.heartbeat_at is None:
        return False  # it ran out; or others hold it, by means of their own
    else:
        since = job.heartbeat_at
    return since is not None and (now - since).total_seconds() > WORKER_SILENT


def health_status(
    workers: Iterable[WorkerInfo], counts: Iterable[Counts], now: datetime, queue: str | None
) -> HealthStatus:
    """What the living workers and the queues add up to, for one queue or for all."""
    living = alive(workers, now)
    recovering = any(worker.health.recovering for worker in living)  # a reaper looks after all queues
    takers = [worker for worker in living if queue is None or queue in worker.queues]
    consumed = {name for worker in takers if worker.health.consuming for name in worker.queues}
    queues = [of for of in counts if queue in (None, of.queue)]
    unattended = [of for of in queues if _due(of) and of.queue not in consumed]

    found = [(worker.health.status, f"worker {worker.id}: {worker.health.why}") for worker in takers]
    found += [(CRITICAL, f"queue {of.queue!r}: {of.halted}") for of in queues if of.halted is not None]
    found += [
        (DEGRADED, f"nobody consumes queue {of.queue!r}, which has {_due(of)} due jobs") for of in unattended
    ]
    if not recovering:
        found += [
            (DEGRADED, f"{of.expired} leases of queue {of.queue!r} ran out and nobody recovers them")
            for of in queues
            if of.expired
        ]
    trouble = sorted((one for one in found if one[0] != HEALTHY), key=lambda one: one[0] != CRITICAL)
    healths = [worker.health for worker in takers]
    ended = sum(health.successes + health.failures for health in healths)
    patterns: Counter[str] = Counter()
    for health in healths:
        patterns.update(health.patterns)
    return HealthStatus(
        status=trouble[0][0] if trouble else HEALTHY,
        why="; ".join(why for _, why in trouble[:REASONS]),
        consecutive_failures=max((health.consecutive_failures for health in healths), default=0),
        success_rate=sum(health.successes for health in healths) / ended if ended else None,
        last_success=max((health.last_success for health in healths if health.last_success), default=None),
        patterns=dict(patterns.most_common(PATTERNS)),
        workers=len(takers),
        consuming=bool(consumed) and not unattended,
    )


def _due(of: Counts) -> int:
    """Jobs that a worker should take now; a pause or a halt is no lack of workers."""
    return 0 if of.stopped else of.due
