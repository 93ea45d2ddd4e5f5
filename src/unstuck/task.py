"""Task: a function that can be run as a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    cast,
    overload,
)

from msgspec import structs

from unstuck import tracing
from unstuck.call import Call
from unstuck.handle import Handle, SyncHandle
from unstuck.handler import LONGEST, Handler
from unstuck.ids import digest, keyed_id, new_id
from unstuck.model import NewJob
from unstuck.options import Options
from unstuck.policy import Policy, Rate, Retry, number
from unstuck.seconds import Seconds, in_seconds

if TYPE_CHECKING:
    from unstuck.app import Unstuck

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
Q = ParamSpec("Q")
C = TypeVar("C")


class QueueOptions(TypedDict, total=False):
    """What can be said of a queue; see :class:`Policy`."""

    lease: Seconds
    heartbeat: Seconds
    max_crashes: int | None
    lapse_backoff: Sequence[Seconds]
    rate: Rate | None
    limit: int | None
    lane_limit: int | None
    stages: Mapping[str, Seconds]
    factors: Mapping[str, float]
    retention: float | timedelta | Literal["forever"] | None  # days
    retention_from: str


class TaskOptions(QueueOptions, total=False):
    """What can be said of a task, besides what holds for its queue.

    ``retry`` is a number of attempts or a Retry. ``timeout`` bounds an attempt, ``stall`` the time between
    two words of progress (seconds). ``isolate`` runs each job in a process of its own.
    """

    name: str | None
    queue: str
    retry: Retry | int | None
    timeout: Seconds | None
    stall: Seconds | None
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
        timeout: Seconds | None = None,
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

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"

    def tune(self, policy: Policy) -> None:
        """Let the jobs that are enqueued from now on carry what another policy says."""
        self._pattern = structs.replace(
            self._pattern, max_crashes=policy.max_crashes, lapse_backoff=policy.lapse_backoff
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        again: bool = False,
        priority: int = 0,
        delay: Seconds = 0.0,
        run_at: datetime | None = None,
        lane: str | None = None,
    ) -> Self:
        """The same task with other options: ``send.options(delay=60, priority=5).enqueue(…)``."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        chosen = Options(
            key=key, again=again, priority=priority, delay=in_seconds(delay), run_at=run_at, lane=lane
        )
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


class TaskFunction(Task[P, R], Generic[P, R, Q, C]):
    """A task as it is declared: it is still called with what its function takes, and returns what that returns."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        return cast(C, super().__call__(*args, **kwargs))


class Decorator(Protocol):
    """Only for the type checker: what ``@app.task(…)`` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R, P, Awaitable[R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...


class BatchDecorator(Protocol):
    """Only for the type checker: what ``@app.batch(…)`` returns. An answer is what a job returns, or an exception."""

    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, list[R | Exception]]], /
    ) -> TaskFunction[[A], R, [list[A]], Coroutine[Any, Any, list[R | Exception]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, list[R]]], /
    ) -> TaskFunction[[A], R, [list[A]], Coroutine[Any, Any, list[R]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> TaskFunction[[A], R, [list[A]], Coroutine[Any, Any, Sequence[R | Exception]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Awaitable[Sequence[R | Exception]]], /
    ) -> TaskFunction[[A], R, [list[A]], Awaitable[Sequence[R | Exception]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], list[R | Exception]], /
    ) -> TaskFunction[[A], R, [list[A]], list[R | Exception]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], list[R]], /
    ) -> TaskFunction[[A], R, [list[A]], list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Sequence[R | Exception]], /
    ) -> TaskFunction[[A], R, [list[A]], Sequence[R | Exception]]: ...
