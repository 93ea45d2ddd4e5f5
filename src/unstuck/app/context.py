"""current_job(): a handler's view of its job, and what it can report while the job runs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from unstuck.app.call import Call
from unstuck.config.checks import LONGEST_LEASE, number
from unstuck.protocol.errors import PayloadError, UnstuckError
from unstuck.protocol.ids import slot_of
from unstuck.protocol.job import Job, Json
from unstuck.protocol.json_text import encode
from unstuck.text.durations import Seconds
from unstuck.text.logs import bounded

if TYPE_CHECKING:
    from unstuck.worker.permit import Permit, RateState

log = logging.getLogger("unstuck.job")
_NOTHING: Mapping[str, Any] = {}  # shared by the many jobs that have no facts, stages or factors


class Context:
    """The running job, for its handler::

        @app.task
        async def resize(files: list[str]) -> None:
            job = current_job()
            for n, file in enumerate(files):
                job.progress(n / len(files))
                await shrink(file, fence=job.fence)

    Progress and stage are stored with the next heartbeat.
    """

    __slots__ = (
        "_factors", "_usual", "alone", "cancelled", "facts", "follow_ups", "job", "lease", "listener", "overdue", "permit",
        "reported_at", "reported_progress", "reported_stage", "seconds", "stages",
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
        self.seconds = seconds  # of the lease that the next heartbeat asks for
        self.reported_progress: Json = None
        self.reported_stage: str | None = None
        self.reported_at = time.monotonic()
        self.facts: Mapping[str, Any] = _NOTHING
        self.follow_ups: tuple[Call[Any], ...] = ()
        self.permit: Permit | None = None  # to call its handler, if its queue has a rate
        self.alone = False  # it runs in a process of its own
        self.overdue = False  # it ran out of time, and the worker does not wait for its end any more
        self._usual = seconds
        self._factors = factors
        self.stages = stages
        self.listener: Callable[[str, Any], None] | None = None  # called with each report that is made here

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
        """The time for which a schedule enqueued this job, in UTC; None if no schedule did."""
        return slot_of(self.job.key)

    def progress(self, value: Json) -> None:
        """Report how far the work is: a number from 0 to 1, or any JSON value."""
        self.reported_progress = Raw(encode(value, "progress"))
        self._report("progress", self.reported_progress)

    def stage(self, name: str, *, expected: Seconds | None = None) -> None:
        """Report which stage the job is in, in at most 100 characters.

        From the next heartbeat on, which comes at once, the lease has the length that the queue's policy sets
        for this stage. It lasts at least the ``expected`` seconds times the stage's factor.
        """
        if not isinstance(name, str) or not name.isprintable() or len(name) > 100:
            raise PayloadError(
                f"stage {ascii(name)[:60]} is not allowed: a text of at most 100 printable characters"
            )
        least = 0.0 if expected is None else number("expected", expected, 0.0, LONGEST_LEASE)
        needed = min(least * self._factors.get(name, 1.0), LONGEST_LEASE)
        self.seconds = max(self.stages.get(name, self._usual), needed)
        self.reported_stage = name
        self._report("stage", [name, None if expected is None else least])

    def then(self, call: Call[Any]) -> None:
        """Enqueue a job together with the completion of this one: both happen, or neither.

        ``current_job().then(publish.call(path))``
        """
        if not isinstance(call, Call):
            raise PayloadError(f"then() takes a call, not a {type(call).__name__}: then(task.call(…))")
        self.follow_ups += (call,)
        self._report("then", call.job)

    async def token(self, *, patience: Seconds | None = None) -> None:
        """Wait for the right to send one request, where requests count and not starts; for ``async def`` handlers.

        Call it before each request. The first uses the token of the start, each further one takes another. Without a token
        within ``patience`` seconds, it raises an error that gives the job back, unspent. Returns at once if the queue has no rate.
        """
        longest = math.inf if patience is None else number("patience", patience, 0.0, LONGEST_LEASE)
        if (permit := self._permit()) is not None:
            await permit.request(longest)

    async def give_back_token(self) -> None:
        """The start needed no request: let its token be used by another. Does nothing after :meth:`token`."""
        if (permit := self._permit()) is not None:
            await permit.give_back()

    async def rate(self) -> RateState | None:
        """The rate of the queue, and how many of its tokens are in use; None if it has none."""
        return None if (permit := self._permit()) is None else await permit.state()

    def _permit(self) -> Permit | None:
        if self.alone:
            raise UnstuckError(
                "the tokens of a rate are with the worker: a process of its own cannot ask for them"
            )
        return self.permit

    def bind(self, **facts: Any) -> None:
        """Add these facts to every log line about this job, also to the one about its failure."""
        added = bounded(facts)
        self.facts = {**self.facts, **added}
        self._report("bind", added)

    def log(self, message: str, **facts: Any) -> None:
        """Write a log line about this job, with these facts and those of ``bind``."""
        fields = {"jobId": self.job.id, "queue": self.job.queue, "task": self.job.task}
        # Under a key of their own: logging refuses names such as "args", and no fact may pass for the job's id.
        all_facts = {**self.facts, **bounded(facts)}
        log.info(message, extra=fields | ({"facts": all_facts} if all_facts else {}))

    def _report(self, kind: str, value: Any) -> None:
        self.reported_at = time.monotonic()
        if self.listener is not None:
            self.listener(kind, value)


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


def in_handler() -> bool:
    return bool(_current.get(()))


def enter(contexts: tuple[Context, ...]) -> None:
    """Make these the current jobs; each handler runs in a context of its own, so nothing has to be undone."""
    _current.set(contexts)
