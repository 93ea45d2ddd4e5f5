"""Task: a function that can be run as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar

from msgspec import structs

from unstuck import tracing
from unstuck.call import Call
from unstuck.handle import Handle, SyncHandle
from unstuck.handler import LONGEST, Handler
from unstuck.ids import digest, keyed_id, new_id
from unstuck.model import NewJob
from unstuck.options import Options
from unstuck.policy import Policy, Rate, Retry, number

if TYPE_CHECKING:
    from unstuck.app import Unstuck

P = ParamSpec("P")
R = TypeVar("R")


class QueueOptions(TypedDict, total=False):
    """What can be said of a queue; see :class:`Policy`."""

    lease: float
    heartbeat: float
    max_crashes: int | None
    lapse_backoff: Sequence[float]
    rate: Rate | None
    limit: int | None
    lane_limit: int | None
    stages: Mapping[str, float]
    factors: Mapping[str, float]
    retention: float | None
    retention_from: str


class TaskOptions(QueueOptions, total=False):
    """What can be said of a task, besides what holds for its queue.

    ``retry`` is a number of attempts or a Retry. ``timeout`` bounds an attempt, ``stall`` the time between
    two words of progress (seconds). ``isolate`` runs each job in a process of its own.
    """

    name: str | None
    queue: str
    retry: Retry | int | None
    timeout: float | None
    stall: float | None
    isolate: bool


class Task(Generic[P, R]):
    """A function that can be run as a job. Called directly it is just the function."""

    def __init__(
        self,
        app: Unstuck,
        handler: Handler,
        queue: str,
        policy: Policy,
        retry: Retry,
        timeout: float | None = None,
    ) -> None:
        self.app = app
        self.handler = handler
        self.name = handler.task
        self.queue = queue
        self._pattern = NewJob(  # what all jobs of this task have in common
            queue=queue,
            task=handler.task,
            id="",
            max_attempts=retry.attempts,
            max_crashes=policy.max_crashes,
            backoff=retry.backoff,
            lapse_backoff=policy.lapse_backoff,
            timeout=None if timeout is None else number("timeout", timeout, 0.05, LONGEST),
        )

    def tune(self, policy: Policy) -> None:
        """Let the jobs that are enqueued from now on carry what another policy says."""
        self._pattern = structs.replace(
            self._pattern, max_crashes=policy.max_crashes, lapse_backoff=policy.lapse_backoff
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        again: bool = False,
        priority: int = 0,
        delay: float | timedelta = 0.0,
        run_at: datetime | None = None,
        lane: str | None = None,
    ) -> Task[P, R]:
        """The same task with other options: ``send.options(delay=60, priority=5).enqueue(…)``."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        twin = object.__new__(Task)
        twin.__dict__.update(self.__dict__)
        chosen = Options(key=key, again=again, priority=priority, delay=seconds, run_at=run_at, lane=lane)
        twin._pattern = structs.replace(self._pattern, **asdict(chosen))
        return twin

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The job that ``enqueue`` would make, for ``enqueue_many`` and ``then``; checked here and now."""
        payload = self.handler.arguments.pack(args, kwargs)
        trace = tracing.current()
        if (key := self._pattern.key) is None:
            job = structs.replace(self._pattern, id=new_id(), payload=payload, trace=trace)
            return Call(job, self.handler.result)
        id_, said = keyed_id(self.queue, key), digest(self.name, bytes(payload))
        job = structs.replace(self._pattern, id=id_, payload=payload, digest=said, trace=trace)
        return Call(job, self.handler.result)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns when the job is safely stored."""
        [handle] = await self.app.enqueue_many([self.call(*args, **kwargs)])
        return handle

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """As ``enqueue``, for code without an event loop."""
        [handle] = self.app.enqueue_many_sync([self.call(*args, **kwargs)])
        return handle
