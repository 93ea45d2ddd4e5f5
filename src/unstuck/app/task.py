"""Task: a function that can be run as a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import update_wrapper
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

from unstuck.app import tracing
from unstuck.app.call import Call
from unstuck.app.follow_ups import OnFailure, OnSuccess, carried
from unstuck.app.handle import Handle, SyncHandle
from unstuck.app.handler import Handler
from unstuck.app.hooks import Middleware
from unstuck.app.shown import copies_of, like_its_function
from unstuck.config.checks import LONGEST_LEASE, number, queue_name
from unstuck.config.job_options import Options, expiry
from unstuck.config.policy import Policy, Rate
from unstuck.config.retry import Retry, retry_policy
from unstuck.operations.new_job import new_job
from unstuck.protocol.job import Json, NewJob
from unstuck.text.durations import Seconds, in_seconds

if TYPE_CHECKING:
    from unstuck.app.app import Unstuck

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
Q = ParamSpec("Q")
C = TypeVar("C")


class QueueOptions(TypedDict, total=False):
    """The options of a queue; see :class:`Policy`."""

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
    recovery: Seconds | None


class TaskOptions(QueueOptions, total=False):
    """The options of a task, and those of its queue.

    ``retry`` is a number of attempts or a :class:`Retry`. ``timeout`` bounds an attempt, ``stall`` the time between
    two progress updates (seconds). ``isolate`` runs each job in a process of its own. ``strict`` fails jobs of other
    systems that have arguments which the function does not take; otherwise these are ignored with a warning.
    ``middleware`` runs around this task alone, inside of that of the app. ``expires``: a job that has not started so many
    seconds after it was enqueued fails. ``on_success`` is a task that gets the result, ``on_failure`` one that gets id, task
    and failure of a job that failed for good; their jobs are enqueued in the same step.
    """

    name: str | None
    queue: str
    retry: Retry | int | None
    timeout: Seconds | None
    stall: Seconds | None
    isolate: bool
    strict: bool
    middleware: Sequence[Middleware]
    expires: Seconds | None
    on_success: OnSuccess | None
    on_failure: OnFailure | None


class Task(Generic[P, R]):
    """A function that can be run as a job: ``@app.task`` makes one. Called directly it is just the function.

    With a task ``send``, ``await send("ann")`` runs the function here and now, and these enqueue jobs::

        handle = await send.enqueue("ann")
        await send.options(key="ann", delay=60).enqueue("ann")

    ``enqueue_sync`` does the same for code without an event loop. A task has its function's name, text and signature.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        app: Unstuck,
        handler: Handler,
        queue: str,
        policy: Policy,
        retry: Retry,
        timeout: Seconds | None = None,
        expires: Seconds | None = None,
        on_failure: Task[Any, Any] | None = None,
    ) -> None:
        update_wrapper(self, handler.function, updated=())
        self.app = app
        self.handler = handler
        self.shown = copies_of(Task, handler.function, handler.arguments.signature, handler.result.hint)
        self.name = handler.task
        self.queue = queue
        self._pattern = self._declared = NewJob(  # what all jobs of this task have in common
            queue=queue,
            task=handler.task,
            id="",
            max_attempts=retry.attempts,
            max_crashes=policy.max_crashes,
            backoff=retry.backoff,
            lapse_backoff=policy.lapse_backoff,
            timeout=None if timeout is None else _timeout(timeout),
            expires=expiry(expires),
        )
        self._on_failure = on_failure

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"

    def tune(self, policy: Policy) -> None:
        """Use another policy for the jobs that are enqueued from now on."""
        self._pattern = self._declared = _under(self._declared, policy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if missing := self.handler.needs and self.handler.needs.unfilled(args, kwargs):
            raise TypeError(
                f"{self.name}() is called directly, where no worker fills {missing[0]!r}: pass it"
            )
        return self.handler.function(*args, **kwargs)

    def options(
        self,
        *,
        key: str | None = None,
        again: bool = False,
        debounce: Seconds | None = None,
        throttle: Seconds | None = None,
        priority: int = 0,
        delay: Seconds = 0.0,
        run_at: datetime | None = None,
        lane: str | None = None,
        queue: str | None = None,
        retry: Retry | int | None = None,
        timeout: Seconds | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Self:
        """The same task with other options: ``send.options(delay=60, priority=5).enqueue(…)``.

        ``queue`` is another one of the app. Its policy then holds for the job. What is left out is as the task declares it.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        pattern = self._declared
        if queue is not None:
            if queue_name(queue) not in self.app.queues:
                self.app.import_tasks()  # one of them may have it
            [policy] = self.app.policies([queue]).values()
            pattern, twin.queue = structs.replace(_under(pattern, policy), queue=queue), queue
        if retry is not None:
            tries = retry_policy(retry).of_a_job()
            pattern = structs.replace(pattern, max_attempts=tries.attempts, backoff=tries.backoff)
        if timeout is not None:
            pattern = structs.replace(pattern, timeout=_timeout(timeout))
        options = Options(
            key=key,
            again=again,
            debounce=None if debounce is None else in_seconds(debounce),
            throttle=None if throttle is None else in_seconds(throttle),
            priority=priority,
            delay=in_seconds(delay),
            run_at=run_at,
            lane=lane,
            expires=expires,
        )
        twin._pattern = _with(pattern, options)
        return twin

    def pattern(self) -> NewJob:
        """What all jobs of this task have in common, and what follows their failure."""
        if self._on_failure is None:
            return self._pattern
        follower = self._on_failure
        return structs.replace(self._pattern, on_failure=carried(follower, follower.pattern()))

    @like_its_function(Call)
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The job that ``enqueue`` would make, for ``enqueue_many`` and ``then``. Arguments are checked here."""
        payload = self.handler.arguments.pack(args, kwargs)
        return Call(new_job(self.pattern(), payload, trace=tracing.current()), self.handler.result)

    def new_job(self, arguments: Mapping[str, Json], options: Options) -> NewJob:
        """The job that ``Jobs.enqueue_task`` adds, for arguments that came as JSON."""
        payload = self.handler.arguments.pack((), arguments)
        pattern = _with(self.pattern(), options)
        return new_job(pattern, payload, trace=tracing.current())

    @like_its_function(Handle)
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a job with these arguments. Returns when the job is safely stored."""
        [handle] = await self.app.enqueue_many([self.call(*args, **kwargs)])
        return handle

    @like_its_function(SyncHandle)
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """As ``enqueue``, for code without an event loop."""
        [handle] = self.app.enqueue_many_sync([self.call(*args, **kwargs)])
        return handle


def _under(pattern: NewJob, policy: Policy) -> NewJob:
    """A job under this policy of its queue."""
    return structs.replace(pattern, max_crashes=policy.max_crashes, lapse_backoff=policy.lapse_backoff)


def _with(pattern: NewJob, options: Options) -> NewJob:
    """A job with these options; without a time to expire at it has that of its task."""
    facts = asdict(options)
    if options.expires is None:
        del facts["expires"]
    return structs.replace(pattern, **facts)


def _timeout(seconds: Seconds) -> float:
    return number("timeout", seconds, 0.05, LONGEST_LEASE)


class TaskFunction(Task[P, R], Generic[P, R, Q, C]):
    """A task with its function's own signature: calling it takes the same arguments and returns the same result."""

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
