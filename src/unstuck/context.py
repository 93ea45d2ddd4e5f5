"""current_job(): what a handler can learn about its job and say of it while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from msgspec import Raw

from unstuck.call import Call
from unstuck.errors import PayloadError, UnstuckError
from unstuck.ids import slot_of
from unstuck.model import Job, Json
from unstuck.payload import encode
from unstuck.policy import LONGEST_LEASE, number
from unstuck.seconds import Seconds
from unstuck.telemetry import bounded

log = logging.getLogger("unstuck.job")
_NOTHING: Mapping[str, Any] = {}  # shared by the many jobs that have no facts, stages or factors


class Context:
    """The running job, for its handler. Progress and stage travel with the next heartbeat."""

    __slots__ = (
        "_factors", "_usual", "cancelled", "facts", "follow_ups", "job", "lease", "listener", "overdue", "said_at",
        "said_progress", "said_stage", "seconds", "stages",
    )  # fmt: skip

    def __init__(
        self,
        job: Job,
        seconds: float = 20.0,
        stages: Mapping[str, float] = _NOTHING,
        factors: Mapping[str, float] = _NOTHING,
    ) -> None:
        self.job = job
        self.lease = job.lease
        self.cancelled = False
        self.seconds = seconds  # that the next heartbeat asks for
        self.said_progress: Json = None
        self.said_stage: str | None = None
        self.said_at = time.monotonic()
        self.facts: Mapping[str, Any] = _NOTHING
        self.follow_ups: tuple[Call[Any], ...] = ()
        self.overdue = False  # it ran out of time: nobody waits for its end any more
        self._usual = seconds
        self._factors = factors
        self.stages = stages
        self.listener: Callable[[str, Any], None] | None = None  # told each word that is said here

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def fence(self) -> int:
        """Grows with every lease of this job. Let the outside world refuse writes with a smaller one."""
        return self.job.fence

    @property
    def attempt(self) -> int:
        return self.job.attempts

    @property
    def slot(self) -> datetime | None:
        """The time for which a schedule enqueued this job, in UTC; None if it is no schedule's."""
        return slot_of(self.job.key)

    def progress(self, value: Json) -> None:
        """Tell how far the work is: a number from 0 to 1, or anything JSON can say."""
        self.said_progress = Raw(encode(value, "progress"))
        self._said("progress", self.said_progress)

    def stage(self, name: str, *, expected: Seconds | None = None) -> None:
        """Tell what the job is busy with now, in at most 100 characters.

        From the next heartbeat on, which comes at once, the lease is as long as the queue's policy says
        for this stage, and at least the seconds that it is ``expected`` to take times the stage's factor.
        """
        if not isinstance(name, str) or not name.isprintable() or len(name) > 100:
            raise PayloadError(
                f"stage {ascii(name)[:60]} is not allowed: a text of at most 100 printable characters"
            )
        least = 0.0 if expected is None else number("expected", expected, 0.0, LONGEST_LEASE)
        needed = min(least * self._factors.get(name, 1.0), LONGEST_LEASE)
        self.seconds = max(self.stages.get(name, self._usual), needed)
        self.said_stage = name
        self._said("stage", [name, None if expected is None else least])

    def then(self, call: Call[Any]) -> None:
        """Enqueue a job together with the completion of this one: both happen, or neither."""
        if not isinstance(call, Call):
            raise PayloadError(f"then() takes a call, not a {type(call).__name__}: then(task.call(…))")
        self.follow_ups += (call,)
        self._said("then", call.job)

    def bind(self, **facts: Any) -> None:
        """Let every log line about this job carry these facts, also the one that tells of its failure."""
        told = bounded(facts)
        self.facts = {**self.facts, **told}
        self._said("bind", told)

    def log(self, message: str, **facts: Any) -> None:
        said = {"jobId": self.job.id, "queue": self.job.queue, "task": self.job.task}
        # Under a key of their own: logging refuses names such as "args", and no fact may pass for the job's id.
        all_facts = {**self.facts, **bounded(facts)}
        log.info(message, extra=said | ({"facts": all_facts} if all_facts else {}))

    def _said(self, word: str, value: Any) -> None:
        self.said_at = time.monotonic()
        if self.listener is not None:
            self.listener(word, value)


_current: ContextVar[tuple[Context, ...]] = ContextVar("unstuck_jobs")


def current_job() -> Context:
    """The job that the calling handler works for."""
    jobs = current_jobs()
    if len(jobs) > 1:
        raise UnstuckError(f"{len(jobs)} jobs run here as one batch: use current_jobs()")
    return jobs[0]


def current_jobs() -> tuple[Context, ...]:
    """The jobs that the calling batch handler works for, in the order of its list."""
    try:
        return _current.get()
    except LookupError:
        raise UnstuckError(
            "no job runs here: current_job() is for handlers; in a test, unstuck.testing.inline runs them as jobs"
        ) from None


def enter(contexts: tuple[Context, ...]) -> None:
    """Make them current; each handler runs in a context of its own, so nothing has to be undone."""
    _current.set(contexts)
