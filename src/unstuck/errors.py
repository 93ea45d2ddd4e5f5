"""The errors a person can meet.

UnstuckError
├── ConfigError        a name, number or option that cannot be; raised before anything happened
├── PayloadError       arguments that do not fit the task or cannot be written as JSON
├── UnknownJob         no job has this id, or several queues have one
├── JobFailed          the job whose result was asked for has failed; ``failure`` says why
├── JobPending         the job whose result was asked for did not finish in time
├── StoreError         the store refused
│   ├── StoreUnavailable   it cannot be reached, is locked or full; the same call may succeed later
│   ├── StoreDamaged       its data is corrupt: restore it from a backup
│   └── SchemaError        its schema is newer than this release, or not ours
└── JobError           raised by handlers: a verdict on their own attempt
    ├── Transient          worth another attempt
    │   ├── RateLimited        the other side wants us to slow down: given back unspent, all workers wait
    │   └── QuotaExhausted     the other side will not serve us any more: the queue is paused
    ├── Permanent          no attempt will succeed
    └── Critical           the ground is broken: stop working
Snooze (no error)      raised by handlers: not now, give the job back for later, unspent
"""

from __future__ import annotations

from unstuck.model import Category, Failure


class UnstuckError(Exception):
    """The base of all errors of this package."""


class ConfigError(UnstuckError):
    pass


class PayloadError(UnstuckError):
    """``size`` is set when the value was too large: its bytes as JSON."""

    def __init__(self, message: str, *, size: int | None = None) -> None:
        super().__init__(message)
        self.size = size


class UnknownJob(UnstuckError):
    pass


class JobFailed(UnstuckError):
    def __init__(self, job: str, failure: Failure) -> None:
        super().__init__(f"job {job} failed: {failure.code}: {failure.message}")
        self.job = job
        self.failure = failure


class JobPending(UnstuckError, TimeoutError):
    pass


class StoreError(UnstuckError):
    pass


class StoreUnavailable(StoreError):
    pass


class StoreDamaged(StoreError):
    pass


class SchemaError(StoreError):
    pass


class JobError(UnstuckError):
    """Raise one of its kinds in a handler to say what the failure means.

    ``code`` is a short word for machines (default: the class's name); ``delay`` replaces the backoff.
    """

    category = Category.TRANSIENT
    code = ""
    delay: float | None = None

    def __init__(self, message: str = "", *, code: str = "", delay: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.delay = delay


class Transient(JobError):
    pass


class RateLimited(Transient):
    pass


class QuotaExhausted(Transient):
    pass


class Permanent(JobError):
    category = Category.PERMANENT


class Critical(JobError):
    category = Category.CRITICAL


class Snooze(Exception):
    """Raise it in a handler to have the job run again after ``seconds``. No attempt is spent."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for another {seconds} s")
        self.seconds = seconds
