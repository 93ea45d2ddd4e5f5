"""A job, and what is known about it. Jobs cannot contain themselves, so ``gc=False``: there are many."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

Json = Any  # what JSON can express: None, bool, int, float, str, and lists and dicts of these

USUAL_ATTEMPTS = 3
USUAL_BACKOFF = (1.0, 2.0, 4.0)  # seconds after the first attempt, the second, and all later ones
EXPIRED = "expired"  # the code of a job that was not started in time
JITTER = 0.2  # a backoff is lengthened by at most this share of itself, never shortened


class Status(StrEnum):
    """The state of a job. One that is delayed or waits for a retry is PENDING with a future ``run_at``."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Category(StrEnum):
    """What kind of trouble an error is; decides what becomes of the job."""

    TRANSIENT = "TRANSIENT"  # may pass: retry after a backoff
    PERMANENT = "PERMANENT"  # no attempt will succeed: fail at once
    CRITICAL = "CRITICAL"  # infrastructure failure: fail the job and stop working


class Ending(StrEnum):
    """How a lease ended. The row keeps the last one, so that a repeated settle is recognised.

    A job that expired ends as cancelled, too: it failed, and is no dead letter.
    """

    COMPLETED = "completed"
    RETRIED = "retried"
    FAILED = "failed"
    RELEASED = "released"
    CANCELLED = "cancelled"


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


class FollowUp(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be made of a failure, as the job that may fail carries it.

    ``names`` are the arguments of its task for the id, the task and the failure of that job.
    """

    queue: str
    task: str
    names: tuple[str, str, str]
    priority: int = 0
    delay: float = 0.0
    max_attempts: int = USUAL_ATTEMPTS
    max_crashes: int | None = None
    backoff: tuple[float, ...] = USUAL_BACKOFF
    lapse_backoff: tuple[float, ...] = ()
    timeout: float | None = None
    lane: str | None = None
    expires: float | None = None
    on_failure: FollowUp | None = None


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued. Its ``id`` exists from birth, so enqueueing it again is harmless.

    ``debounce`` and ``throttle`` are seconds; a debounced job has the same ``delay``. See ``Leases.enqueue``.
    ``expires`` is when it fails if it was not started before: seconds from now, or an instant.
    """

    queue: str
    task: str
    id: str
    payload: Json = None
    key: str | None = None
    again: bool = False
    debounce: float | None = None
    throttle: float | None = None
    digest: str | None = None
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    max_attempts: int = USUAL_ATTEMPTS
    max_crashes: int | None = None
    backoff: tuple[float, ...] = USUAL_BACKOFF
    lapse_backoff: tuple[float, ...] = ()
    timeout: float | None = None
    lane: str | None = None
    parent: str | None = None
    trace: str | None = None
    webhook: str | None = None
    expires: float | datetime | None = None
    on_failure: FollowUp | None = None

    @property
    def interval(self) -> float:
        """The seconds for which the job stands for its key; 0 for a job that is not spaced."""
        return self.debounce or self.throttle or 0.0


class Enqueued(Struct, frozen=True, gc=False):
    """``created`` is false when a job with this id existed, or one stood for its key; ``same`` is whether its digest is equal."""

    queue: str
    id: str
    created: bool
    same: bool = True

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """A job as its store has it. Times are the store's.

    ``foreign``: another system enqueued it. ``jitter`` is the share of itself by which a backoff is lengthened at most, or
    shortened if it is negative.
    """

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
    max_attempts: int = USUAL_ATTEMPTS
    crashes: int = 0
    max_crashes: int | None = None
    fence: int = 0
    owner: str | None = None
    lease_until: datetime | None = None
    heartbeat_at: datetime | None = None
    stage: str | None = None
    settled_fence: int | None = None
    settled: Ending | None = None
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
    expires_at: datetime | None = None
    on_failure: FollowUp | None = None
    foreign: bool = False
    jitter: float = JITTER

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)

    @property
    def lease(self) -> Lease:
        return Lease(self.queue, self.id, self.fence)

    @property
    def spent(self) -> int:
        """The attempts that count against ``max_attempts``."""
        return self.attempts if self.max_crashes is None else self.attempts - self.crashes

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or expired: it failed without being a dead letter."""
        return self.status is Status.FAILED and self.settled is Ending.CANCELLED

    @property
    def expired(self) -> bool:
        """Whether it failed because it had not started when its time was over."""
        return self.cancelled and self.error is not None and self.error.code == EXPIRED

    @property
    def can_expire(self) -> bool:
        """Whether it has a time by which it must start, and has not started: a lease that was given back is no start."""
        return self.expires_at is not None and self.attempts == 0

    @property
    def dead(self) -> bool:
        """A dead letter: it failed for good, and neither was cancelled nor expired."""
        return self.status is Status.FAILED and not self.cancelled
