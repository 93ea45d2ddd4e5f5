"""The errors a person can meet.

UnstuckError
├── ConfigError        a name, number or option that cannot be; raised before anything happened
├── PayloadError       arguments that do not fit the task or cannot be written as JSON
├── UnknownJob         no job has this id, or several queues have one
├── JobFailed          the job whose result was asked for has failed; ``failure`` says why
├── JobPending         the job whose result was asked for did not finish in time
├── StoreError         the store refused
│   ├── StoreUnavailable   it cannot be reached, is locked or full; the same call may succeed later
│   │   └── PartlySettled      some of the outcomes were written, the others may be later
│   ├── StoreDamaged       its data is corrupt: restore it from a backup
│   ├── UnreadableJob      the record of one job was edited so that it cannot be read; the others are fine
│   └── SchemaError        its schema is newer than this release, or not ours
└── JobError           raised by handlers: a verdict on their own attempt
    ├── Transient          worth another attempt
    │   ├── RateLimited        the other side wants us to slow down: given back unspent, all workers wait
    │   └── QuotaExhausted     the other side will not serve us any more: the queue is paused
    ├── Permanent          no attempt will succeed
    └── Critical           infrastructure failure: stop working
Snooze (not an error)  raised by handlers: not now, give the job back for later, unspent
"""

from __future__ import annotations

from typing import Any

from unstuck.protocol.job import Category, Failure
from unstuck.protocol.outcome import Settled
from unstuck.text.durations import Seconds, in_seconds

LONGEST_DELAY = 366 * 86400.0
SHORTEST_SNOOZE = 0.1  # seconds: one that is over already must not keep a worker busy with nothing else


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


class PartlySettled(StoreUnavailable):
    """``answers`` has one for each outcome, and None for those that could not be written now."""

    def __init__(self, message: str, answers: list[Settled | None]) -> None:
        super().__init__(message)
        self.answers = answers


class StoreDamaged(StoreError):
    pass


class UnreadableJob(StoreError):
    pass


class SchemaError(StoreError):
    pass


class JobError(UnstuckError):
    """Raise one of its kinds in a handler to say what the failure means.

    ``code`` is a short word for machines (default: the class's name); ``delay`` replaces the backoff, and a
    negative one counts as 0.
    """

    category = Category.TRANSIENT
    code = ""
    delay: Seconds | None = None

    def __init__(self, message: str = "", *, code: str = "", delay: Seconds | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.delay = None if delay is None else _length(f"delay of {type(self).__name__}", delay)


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
    """Raise it in a handler to have the job run again after ``seconds``, 0.1 at least. No attempt is spent."""

    def __init__(self, seconds: Seconds) -> None:
        self.seconds = max(_length("Snooze", seconds), SHORTEST_SNOOZE)
        super().__init__(f"not for another {self.seconds:g} s")


def _length(what: str, given: Any) -> float:
    """The seconds, also less than 0: what is left until some moment may have passed while it was worked out."""
    seconds = in_seconds(given)
    # Written in this way so that NaN is refused, too.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds <= LONGEST_DELAY:
        raise ConfigError(
            f"{what} is {given!r:.60}: it must be a number of seconds, {LONGEST_DELAY:.0f} (366 days) at most, or a timedelta"
        )
    return float(max(seconds, -LONGEST_DELAY))  # an int may be smaller than any float


# Tracebacks show the names by which people import them. PartlySettled stays between a store and its worker.
for _error in tuple(globals().values()):
    if isinstance(_error, type) and issubclass(_error, UnstuckError | Snooze) and _error is not PartlySettled:
        _error.__module__ = "unstuck"
