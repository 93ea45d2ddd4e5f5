"""The values everything else speaks of. They cannot contain themselves, so ``gc=False``: there are many."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

Json = Any  # what JSON can say: None, bool, int, float, str, and lists and dicts of these


class Status(StrEnum):
    """Where a job is. Delayed and waiting-for-retry jobs are PENDING with a future ``run_at``."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Category(StrEnum):
    """What kind of trouble an error is; decides what becomes of the job."""

    TRANSIENT = "TRANSIENT"  # may pass: retry after a backoff
    PERMANENT = "PERMANENT"  # no attempt will succeed: fail at once
    CRITICAL = "CRITICAL"  # the ground is broken: fail the job and stop working


class Word(StrEnum):
    """How a lease ended. The row keeps the last one, so that a repeated settle is recognised."""

    COMPLETED = "completed"
    RETRIED = "retried"
    FAILED = "failed"
    RELEASED = "released"
    CANCELLED = "cancelled"


class Verdict(StrEnum):
    """What a heartbeat learns about a lease."""

    HELD = "held"
    LOST = "lost"
    CANCELLED = "cancelled"


class Settled(StrEnum):
    """What became of an outcome: ``REPEATED`` means this very outcome was applied before."""

    APPLIED = "applied"
    REPEATED = "repeated"
    LOST = "lost"


class Ref(NamedTuple):
    """A job's address. Ids are unique within their queue only."""

    queue: str
    id: str


class Lease(NamedTuple):
    """The right to change one processing job. ``fence`` grows with every grant."""

    queue: str
    id: str
    fence: int

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why an attempt did not succeed. ``code`` and ``reason`` are for machines, ``message`` for people."""

    category: Category
    code: str
    message: str
    reason: str = ""
    stack: str = ""
    attempt: int = 0
    worker: str = ""
    details: Mapping[str, Json] = {}
    at: datetime | None = None  # stamped by the store


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued. Its ``id`` exists from birth, so enqueueing it again is harmless."""

    queue: str
    task: str
    id: str
    payload: Json = None
    key: str | None = None
    again: bool = False
    digest: str | None = None
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    max_attempts: int = 3
    max_crashes: int | None = None
    backoff: tuple[float, ...] = (1.0, 2.0, 4.0)
    lapse_backoff: tuple[float, ...] = ()
    timeout: float | None = None
    lane: str | None = None
    parent: str | None = None
    trace: str | None = None
    webhook: str | None = None


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """A job as its store has it. Times are the store's."""

    queue: str
    id: str
    task: str
    status: Status
    payload: Json = None
    key: str | None = None
    digest: str | None = None
    priority: int = 0
    created_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0
    max_attempts: int = 3
    crashes: int = 0
    max_crashes: int | None = None
    fence: int = 0
    owner: str | None = None
    lease_until: datetime | None = None
    heartbeat_at: datetime | None = None
    stage: str | None = None
    settled_fence: int | None = None
    settled: Word | None = None
    progress: Json = None
    result: Json = None
    error: Failure | None = None
    backoff: tuple[float, ...] = ()
    lapse_backoff: tuple[float, ...] = ()
    timeout: float | None = None
    lane: str | None = None
    parent: str | None = None
    trace: str | None = None
    webhook: str | None = None

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)

    @property
    def lease(self) -> Lease:
        return Lease(self.queue, self.id, self.fence)

    @property
    def cancelled(self) -> bool:
        return self.status is Status.FAILED and self.settled is Word.CANCELLED

    @property
    def dead(self) -> bool:
        """A dead letter: failed for good, and nobody wanted it so."""
        return self.status is Status.FAILED and not self.cancelled


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """How a lease ends. ``pause`` is the reason to pause the job's queue in the same step, if there is one."""

    lease: Lease
    word: Word
    event: str
    delay: float = 0.0
    result: Json = None
    failure: Failure | None = None
    crashed: bool = False
    why: str = ""
    pause: str = ""
    then: tuple[NewJob, ...] = ()

    @property
    def status(self) -> Status:
        match self.word:
            case Word.COMPLETED:
                return Status.COMPLETED
            case Word.FAILED | Word.CANCELLED:
                return Status.FAILED
            case Word.RETRIED | Word.RELEASED:
                return Status.PENDING

    @property
    def alert(self) -> str:
        """What an operator must hear of, if anything: told as an event of its own in the same step."""
        if self.pause:
            return "halted" if self.word is Word.FAILED else "paused"
        return "dead_letter" if self.word is Word.FAILED else ""

    @property
    def refund(self) -> int:
        return 1 if self.word is Word.RELEASED else 0


def completed(lease: Lease, result: Json = None, *, then: tuple[NewJob, ...] = ()) -> Outcome:
    return Outcome(lease=lease, word=Word.COMPLETED, event="completed", result=result, then=then)


def retried(
    lease: Lease, failure: Failure, delay: float, *, event: str = "retried", crashed: bool = False
) -> Outcome:
    return Outcome(lease=lease, word=Word.RETRIED, event=event, failure=failure, delay=delay, crashed=crashed)


def failed(
    lease: Lease, failure: Failure, *, event: str = "failed", crashed: bool = False, pause: str = ""
) -> Outcome:
    return Outcome(lease=lease, word=Word.FAILED, event=event, failure=failure, crashed=crashed, pause=pause)


def released(lease: Lease, delay: float = 0.0, *, why: str = "", pause: str = "") -> Outcome:
    """Hand the job back unharmed: the attempt is not counted."""
    return Outcome(lease=lease, word=Word.RELEASED, event="released", delay=delay, why=why, pause=pause)


class Beat(Struct, frozen=True, gc=False):
    """One sign of life: renew ``lease`` for ``seconds``; None leaves progress and stage as they are."""

    lease: Lease
    seconds: float
    progress: Json = None
    stage: str | None = None


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a worker fares. ``patterns`` counts the latest errors by code while it is not healthy.

    Successes and failures are those of the last hundred attempts.
    """

    status: str = "HEALTHY"
    why: str = ""
    consecutive_failures: int = 0
    successes: int = 0
    failures: int = 0
    last_success: datetime | None = None
    patterns: Mapping[str, int] = {}
    consuming: bool = True  # the store answers it when it asks for work
    recovering: bool = True


class Worker(Struct, frozen=True, kw_only=True, gc=False):
    """A worker as it presents itself with every heartbeat. ``id`` is unique per process start.

    ``identity`` tells its process from all others of its host, if the system lets it know.
    """

    id: str
    host: str = ""
    pid: int = 0
    identity: str = ""
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()  # that it fires
    limits: Mapping[str, Mapping[str, Json]] = {}  # of its queues, by the names that Policy has for them
    concurrency: int = 0
    running: int = 0
    left: bool = False  # it has ended, and meant to
    health: Health = Health()
    scan_ms: float | None = None  # how long the last scan of its reaper took
    started_at: datetime | None = None  # both stamped by the store
    seen_at: datetime | None = None


class Filter(Struct, frozen=True, kw_only=True, gc=False):
    """Which jobs. Every field that is set must hold; ``older_than`` counts seconds since they finished."""

    queue: str | None = None
    ids: tuple[str, ...] | None = None
    status: Status | None = None
    task: str | None = None
    key: str | None = None
    owner: str | None = None
    category: Category | None = None
    code: str | None = None
    dead: bool = False
    older_than: float | None = None


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened to a job, or to a queue (no ``job``). ``data`` has ``type``, ``table`` and ``details``."""

    cursor: str
    at: datetime
    type: str
    queue: str
    job: str | None
    data: Mapping[str, Json]
