"""Unstuck: an application's tasks and its store. Register tasks, enqueue jobs, follow them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast, overload

from unstuck.app.call import Call
from unstuck.app.dependencies import Depends, Function, Needs, name_of
from unstuck.app.enqueueing import Enqueueing
from unstuck.app.follow_ups import OnFailure, OnSuccess, after_failure, after_success
from unstuck.app.handler import Handler
from unstuck.app.hooks import (
    Lifespan,
    Middleware,
    check_lifespan,
    middleware_of,
)
from unstuck.app.modules import imported, module_name
from unstuck.app.open_stores import OpenStores
from unstuck.app.schedule import Schedule
from unstuck.app.sync import portal
from unstuck.app.sync_jobs import SyncJobs
from unstuck.app.task import BatchDecorator, Decorator, QueueOptions, Task, TaskFunction, TaskOptions
from unstuck.config.checks import queue_name, shown, task_name, whole
from unstuck.config.policy import Policy, must_agree
from unstuck.config.retry import Retry, retry_policy
from unstuck.config.timing import CatchUp
from unstuck.operations.jobs import Jobs
from unstuck.operations.store_urls import ends_with_process, store_url
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Job
from unstuck.protocol.store import Store
from unstuck.text.durations import Seconds

P = ParamSpec("P")
R = TypeVar("R")


class Unstuck(Enqueueing):
    """A set of tasks and the store that keeps their jobs::

        app = Unstuck("sqlite:///jobs.db")

        @app.task(queue="mail", retry=5)
        async def send(to: str) -> None: ...

        handle = await send.enqueue("ann@example.org")

    ``unstuck worker shop.tasks:app`` runs the jobs. The store is opened when it is first needed;
    ``async with app:`` opens and closes it at a known time.

    ``include`` names other modules that have tasks of this app. Workers import them before they start.
    """

    def __init__(self, store: str, *, include: Sequence[str] = ()) -> None:
        super().__init__()
        self.url = store
        self._include = _modules(include)
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.queues: dict[str, Policy] = {}
        self.schedules: dict[str, Schedule] = {}
        self.lifespans: list[Lifespan] = []
        self.middlewares: list[Middleware] = []
        self.replaced_dependencies: Mapping[Function, Function] = {}
        self._stores = OpenStores()

    @property
    def url(self) -> str:
        """The store's URL. A relative path means the same file after a ``chdir``."""
        return self._url

    @url.setter
    def url(self, store: str) -> None:
        self._url = store_url(store)  # a wrong URL is reported now, not at the first job

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> None:
        """Declare the options of a queue, so that its tasks need not repeat them. Call it before they are registered.

        ``app.queue("mail", lease=60, rate=Rate(20, per=60))``; see :class:`Policy`.
        """
        policy = _policy(options, f"queue {queue_name(name)!r}")
        if self.queues.get(name, policy) != policy:
            raise ConfigError(f"queue {name!r} is in use already: declare it once, before its tasks")
        must_agree(self.queues | {name: policy})
        self.queues[name] = policy

    def import_tasks(self, include: Sequence[str] = ()) -> None:
        """Import the modules that have tasks of this app, and these others."""
        for module in (*self._include, *_modules(include)):
            imported(module, f"include={module!r}")

    def tune(self, policies: Mapping[str, Policy]) -> None:
        """Replace the policies that the code declared for queues, in this process."""
        self.queues |= policies
        for task in self.tasks.values():
            task.tune(self.queues[task.queue])

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R, P, Awaitable[R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a task of a function: ``async def`` runs on the event loop, ``def`` in a thread.

        Use it plain or with options: ``@app.task`` or ``@app.task(queue="mail", retry=5, timeout=30)``.
        Lease, heartbeat and the other options of a queue must be the same for all tasks that share it.
        """

        def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
            return self._register(function, 0, **options)

        return decorate if function is None else decorate(function)

    def batch(self, size: int, **options: Unpack[TaskOptions]) -> BatchDecorator:
        """Make a task of a function that takes up to ``size`` jobs at once: it gets a list and returns one answer for each::

            @app.batch(50)
            async def embed(texts: list[str]) -> list[float]: ...

        ``embed.enqueue(text)`` adds one job. An answer that is an exception fails only its own job.
        """
        if callable(size):
            raise ConfigError("@app.batch has no size: write @app.batch(50), for up to 50 jobs in one call")
        whole("batch size", size, 1, 10_000)

        def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
            return self._register(function, size, **options)

        return cast(BatchDecorator, decorate)

    def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "last",
    ) -> None:
        """Enqueue a job like ``call`` at the times of a :class:`Schedule`.

        ``app.schedule("report", report.call(), cron="0 3 * * *", tz="Europe/Berlin")``
        """
        schedule = Schedule(name=name, call=call, cron=cron, every=every, tz=tz, catch_up=catch_up)
        if name in self.schedules:
            raise ConfigError(f"schedule {name!r} exists already: give one of the two another name")
        self.schedules[name] = schedule

    def lifespan(self, function: Lifespan) -> Lifespan:
        """A decorator: workers enter this asynchronous context manager before the first job and leave it after the last."""
        check_lifespan(function)
        self.lifespans.append(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """A decorator: ``function(job, call_next)`` runs around every handler::

            @app.middleware
            async def timed(job: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
                with timer(job.job.task):
                    return await call_next()

        The first one registered is the outermost.
        """
        self.middlewares.append(function)
        return function

    def policies(self, queues: Iterable[str] | None = None) -> dict[str, Policy]:
        """The policies of these queues, or of all that tasks use."""
        if isinstance(queues, str):
            raise ConfigError(f"queues is {queues!r}: it must be a list of names, for example [{queues!r}]")
        wanted = list(self.queues) if queues is None else list(queues)
        if not wanted:
            raise ConfigError(
                "this app has no tasks: register one with @app.task, or name the modules that do, by "
                'Unstuck(…, include=["shop.mail"]) or by unstuck worker --include shop.mail'
            )
        for name in wanted:
            if name not in self.queues:
                known = ", ".join(sorted(self.queues))
                raise ConfigError(
                    f"no task of this app uses queue {name!r}: it has {known}; one without a task of its own is declared "
                    f"by app.queue({name!r})"
                )
        return {name: self.queues[name] for name in wanted}

    async def job(self, id: str, queue: str | None = None) -> Job:
        """A job as the store has it; the queue is needed only where two queues have the id."""
        return await (await self.jobs()).get(id, queue)

    def job_sync(self, id: str, queue: str | None = None) -> Job:
        return portal().run(self.job(id, queue))

    async def jobs(self) -> Jobs:
        """All that can be done with the jobs of the store, on the current event loop."""
        self.import_tasks()
        return await self._jobs()

    async def _jobs(self) -> Jobs:
        return Jobs(await self.store(), self.tasks)

    def jobs_sync(self) -> SyncJobs:
        """The same for code without an event loop: every call waits for its answer. Any thread may use it."""
        return SyncJobs(self.jobs)

    async def store(self) -> Store:
        """The open store of the current event loop."""
        if ends_with_process(self.url):
            raise ConfigError(
                "store 'sqlite:///:memory:' would be another one in each process and event loop, and gone with it: name a "
                "file, sqlite:///jobs.db; tests have unstuck.testing.inline(app)"
            )
        return await self._stores.opened(self.url)

    @asynccontextmanager
    async def using(
        self,
        store: str,
        *,
        own_transactions: bool = False,
        dependencies: Mapping[Function, Function] | None = None,
    ) -> AsyncIterator[None]:
        """Use another store for the length of a block, in all threads and event loops.

        Two things are for tests: with ``own_transactions`` ``enqueue_in`` adds its jobs at once and leaves the caller's
        alone, and workers call the values of ``dependencies`` in the place of its keys.
        """
        self._check_replaced(instead := dict(dependencies or {}))
        before = self.url, self._own_transactions, self.replaced_dependencies
        self.url, self._own_transactions, self.replaced_dependencies = store, own_transactions, instead
        try:
            yield
        finally:
            await self.__aexit__()
            self.url, self._own_transactions, self.replaced_dependencies = before

    async def __aenter__(self) -> Self:
        await self.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store, also where synchronous callers have opened it."""
        await self._stores.close(self.url)

    def _check_replaced(self, dependencies: Mapping[Function, Function]) -> None:
        if not dependencies:
            return
        self.import_tasks()
        handlers = [task.handler for task in self.tasks.values()]
        for function, other in dependencies.items():
            if not any(function in handler.needs.functions for handler in handlers):
                raise ConfigError(f"no task of this app depends on {name_of(function)!r}")
            Depends(other)  # or it raises what is wrong with it
        for handler in handlers:
            Needs(handler.function, f"task {handler.task!r}", dependencies)

    def _register(
        self,
        function: Callable[..., Any],
        batch: int,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | None = None,
        timeout: Seconds | None = None,
        stall: Seconds | None = None,
        isolate: bool = False,
        strict: bool = False,
        middleware: Sequence[Middleware] = (),
        expires: Seconds | None = None,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        **options: Unpack[QueueOptions],
    ) -> Task[Any, Any]:
        tries = retry_policy(retry)
        function = function.handler.function if isinstance(function, Task) else function
        named = task_name(name or _own_name(function))
        if named in self.tasks:
            raise ConfigError(f"task {named!r} is registered already: give one of the two another name=")
        known = self.queues.get(queue_name(queue))
        policy = (
            known
            if known is not None and not options
            else _policy(options, f"task {named!r}", TaskOptions.__annotations__)
        )
        if known is not None and (differences := known.differences(policy)):
            raise ConfigError(
                f"task {named!r} disagrees with the other tasks of queue {queue!r} in {', '.join(differences)}: "
                "make them agree, or give it a queue of its own"
            )
        must_agree(self.queues | {queue: policy})
        around = middleware_of(named, middleware)
        then, otherwise = after_success(self, named, on_success), after_failure(self, named, on_failure)
        handler = Handler(
            function, named, batch=batch, isolate=isolate, stall=stall, strict=strict, errors=tries.errors
        )
        task: Task[Any, Any] = TaskFunction(self, handler, queue, policy, tries, timeout, expires, otherwise)
        handler.middlewares, handler.after_success = around, then
        self.queues[queue] = policy
        self.tasks[named] = task
        return task


def _modules(include: Sequence[str]) -> tuple[str, ...]:
    if isinstance(include, str):
        raise ConfigError(
            f"include is {shown(include)}: it must be a list of modules, for example [{shown(include)}]"
        )
    return tuple(map(module_name, include))


def _policy(options: QueueOptions, whose: str, known: Iterable[str] = QueueOptions.__annotations__) -> Policy:
    if unknown := sorted(options.keys() - QueueOptions.__annotations__.keys()):
        raise ConfigError(f"{whose} has no option {unknown[0]!r}: it takes {', '.join(known)}")
    steps: Any = options.get("lapse_backoff", ())
    return Policy(**options | {"lapse_backoff": tuple(steps) if isinstance(steps, Sequence) else steps})


def _own_name(function: Callable[..., Any]) -> str:
    """The function's name; a lambda or a callable object has none that could find it again."""
    own = getattr(function, "__name__", "")
    if not own.isidentifier():
        raise ConfigError(f'task name {own!r} is not allowed: name the task, as in @app.task(name="send")')
    return str(own)
