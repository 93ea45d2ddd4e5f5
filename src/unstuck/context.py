"""current_job(): what a handler can learn about its job and say of it while it runs."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from msgspec import Raw

from unstuck.call import Call
from unstuck.errors import PayloadError, UnstuckError
from unstuck.model import Job, Json
from unstuck.payload import encode
from unstuck.telemetry import bounded

log = logging.getLogger("unstuck.job")


class Context:
    """The running job, for its handler. Progress and stage travel with the next heartbeat."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.cancelled = False
        self.said_progress: Json = None
        self.said_stage: str | None = None
        self.follow_ups: list[Call[Any]] = []

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

    def progress(self, value: Json) -> None:
        """Tell how far the work is: a number from 0 to 1, or anything JSON can say."""
        self.said_progress = Raw(encode(value, "progress"))

    def stage(self, name: str) -> None:
        """Tell what the job is busy with now, in at most 100 characters."""
        if not isinstance(name, str) or not name.isprintable() or len(name) > 100:
            raise PayloadError(
                f"stage {ascii(name)[:60]} is not allowed: a text of at most 100 printable characters"
            )
        self.said_stage = name

    def then(self, call: Call[Any]) -> None:
        """Enqueue a job together with the completion of this one: both happen, or neither."""
        if not isinstance(call, Call):
            raise PayloadError(f"then() takes a call, not a {type(call).__name__}: then(task.call(…))")
        self.follow_ups.append(call)

    def log(self, message: str, **facts: Any) -> None:
        said = {"jobId": self.job.id, "queue": self.job.queue, "task": self.job.task}
        # Under a key of their own: logging refuses names such as "args", and no fact may pass for the job's id.
        log.info(message, extra=said | ({"facts": bounded(facts)} if facts else {}))


_current: ContextVar[Context] = ContextVar("unstuck_job")


def current_job() -> Context:
    """The job that the calling handler works for."""
    try:
        return _current.get()
    except LookupError:
        raise UnstuckError("no job runs here: current_job() is for handlers") from None


def enter(context: Context) -> None:
    """Make the context current; each handler runs in a context of its own, so nothing has to be undone."""
    _current.set(context)
