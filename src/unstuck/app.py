"""Unstuck: the application's face. Register tasks, enqueue jobs, follow them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from unstuck.call import Call
from unstuck.environ import default_retry
from unstuck.errors import ConfigError
from unstuck.handle import Handle, SyncHandle
from unstuck.handler import Handler, must_be_a_lifespan
from unstuck.isolated import Lifespan
from unstuck.jobs import Jobs
from unstuck.model import Job
from unstuck.perform import Middleware
from unstuck.policy import Policy, Retry, must_agree, queue_name, shown, task_name, whole
from unstuck.schedule import CatchUp, Schedule
from unstuck.seconds import Seconds
from unstuck.store import Enqueued, Store
from unstuck.stores import joinable, open_store
from unstuck.sync import portal
from unstuck.task import BatchDecorator, Decorator, QueueOptions, Task, TaskFunction, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")


class Unstuck:
    """A set of tasks and the store their jobs live in.

    Opens the store when it is first needed; ``async with app:`` opens and closes it at a known time.
    """

    def __init__(self, store: str) -> None:
        open_store(store)  # a wrong URL is told now, not at the first job
        self.url = store
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.queues: dict[str, Policy] = {}
        self.schedules: dict[str, Schedule] = {}
        self.lifespans: list[Lifespan] = []
        self.middlewares: list[Middleware] = []
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Store]] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> None:
        """Say what holds for a queue; its tasks need not say it again. Call it before they are registered."""
        policy = _policy(options, f"queue {queue_name(name)!r}")
        if self.queues.get(name, policy) != policy:
            raise ConfigError(f"queue {name!r} is in use already: declare it once, before its tasks")
        must_agree(self.queues | {name: policy})
        self.queues[name] = policy

    def tune(self, policies: Mapping[str, Policy]) -> None:
        """Let other policies hold for queues than those the code declared, in this process."""
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

        Lease, heartbeat and what else concerns the queue must be the same for all tasks that share it.
        """

        def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
            return self._register(function, 0, **options)

        return decorate if function is None else decorate(function)

    def batch(self, size: int, **options: Unpack[TaskOptions]) -> BatchDecorator:
        """Make a task of a function that takes up to ``size`` jobs at once: a list in, an answer for each out.

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
        """Enqueue a job like ``call`` whenever the clock says so; see :class:`Schedule`."""
        schedule = Schedule(name=name, call=call, cron=cron, every=every, tz=tz, catch_up=catch_up)
        if name in self.schedules:
            raise ConfigError(f"schedule {name!r} exists already: give one of the two another name")
        self.schedules[name] = schedule

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Enter this asynchronous context manager before a worker takes jobs, and leave it after the last."""
        must_be_a_lifespan(function)
        self.lifespans.append(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Run ``function(job, call_next)`` around every handler; the one registered first is the outermost."""
        self.middlewares.append(function)
        return function

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue jobs of any tasks in one step: all of them are stored, or none."""
        listed = _listed(calls)
        answers = await (await self.jobs()).enqueue([call.job for call in listed])
        return self._handles(answers, listed)

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        handles = portal().run(self.enqueue_many(_listed(calls)))
        return [SyncHandle(handle) for handle in handles]

    async def enqueue_in(self, connection: Any, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue jobs inside the transaction of an asynchronous connection of yours, on PostgreSQL.

        They exist if and when you commit; until then nobody sees them, their handles included. Takes connections
        and sessions of psycopg, asyncpg and SQLAlchemy, and only uses them: your transaction stays yours to end.
        """
        store = joinable(await self.store(), self.url)
        listed = _listed(calls)
        answers = await store.enqueue_in(connection, [call.job for call in listed])
        return self._handles(answers, listed)

    def enqueue_in_sync(self, connection: Any, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        """As ``enqueue_in``, on a synchronous connection: of psycopg, psycopg2, SQLAlchemy or Django."""
        # No warning inside of an event loop: the connection itself would hold that up, too.
        store = joinable(portal(inside_a_loop=True).run(self.store()), self.url)
        listed = _listed(calls)
        answers = store.enqueue_in_sync(connection, [call.job for call in listed])
        return [SyncHandle(handle) for handle in self._handles(answers, listed)]

    def _handles(self, answers: Iterable[Enqueued], calls: Iterable[Call[R]]) -> list[Handle[R]]:
        return [
            Handle(self.jobs, *pair) for pair in zip(answers, (call.result for call in calls), strict=True)
        ]

    def policies(self, queues: Iterable[str] | None = None) -> dict[str, Policy]:
        """The policies of these queues, or of all that tasks use."""
        if isinstance(queues, str):
            raise ConfigError(f"queues is {queues!r}: it must be a list of names, for example [{queues!r}]")
        wanted = list(self.queues) if queues is None else list(queues)
        if not wanted:
            raise ConfigError("this app has no tasks: register one with @app.task before you start a worker")
        for name in wanted:
            if name not in self.queues:
                known = ", ".join(sorted(self.queues))
                raise ConfigError(f"no task of this app uses queue {name!r}: it has {known}")
        return {name: self.queues[name] for name in wanted}

    async def job(self, id: str, queue: str | None = None) -> Job:
        """All that the store knows of a job; the queue is needed only where two queues have the id."""
        return await (await self.jobs()).get(id, queue)

    def job_sync(self, id: str, queue: str | None = None) -> Job:
        return portal().run(self.job(id, queue))

    async def jobs(self) -> Jobs:
        """All that can be asked of the store, on the current event loop."""
        return Jobs(await self.store())

    async def store(self) -> Store:
        """The open store of the current event loop."""
        loop = asyncio.get_running_loop()
        opened = self._stores.setdefault(loop, {})
        if self.url not in opened:
            async with self._opening.setdefault(loop, asyncio.Lock()):
                if self.url not in opened:
                    opened[self.url] = await _opened(self.url)
        return opened[self.url]

    @asynccontextmanager
    async def using(self, store: str) -> AsyncIterator[None]:
        """Let the app use another store for the length of a block, wherever it is called from."""
        own, self.url = self.url, store
        try:
            yield
        finally:
            await self.__aexit__()
            self.url = own

    async def __aenter__(self) -> Self:
        await self.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store, also where synchronous callers have opened it."""
        here = asyncio.get_running_loop()
        for loop, opened in list(self._stores.items()):
            if (store := opened.pop(self.url, None)) is None:
                continue
            closing = store.__aexit__(None, None, None)
            if loop is here:
                await closing
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, loop))
            else:
                closing.close()

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
        **options: Unpack[QueueOptions],
    ) -> Task[Any, Any]:
        if not isinstance(retry, Retry | int | None):
            raise ConfigError(f"retry is {retry!r}: it must be a number of attempts or a Retry(…)")
        usual = default_retry(os.environ)
        tries = replace(usual, attempts=retry) if isinstance(retry, int) else retry or usual
        named = task_name(name or getattr(function, "__name__", ""))
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
        handler = Handler(function, named, batch=batch, isolate=isolate, stall=stall)
        task: Task[Any, Any] = TaskFunction(self, handler, queue, policy, tries, timeout)
        self.queues[queue] = policy
        self.tasks[named] = task
        return task


def _listed(calls: Iterable[Call[R]]) -> list[Call[R]]:
    if isinstance(calls, Call):
        raise ConfigError("one call is no list of calls: write [task.call(…)]")
    found = list(calls)
    for call in found:
        if not isinstance(call, Call):
            raise ConfigError(f"{shown(call)} is no call: give a task.call(…)")
    return found


def _policy(options: QueueOptions, whose: str, known: Iterable[str] = QueueOptions.__annotations__) -> Policy:
    if unknown := sorted(options.keys() - QueueOptions.__annotations__.keys()):
        raise ConfigError(f"{whose} has no option {unknown[0]!r}: it takes {', '.join(known)}")
    steps: Any = options.get("lapse_backoff", ())
    return Policy(**options | {"lapse_backoff": tuple(steps) if isinstance(steps, Sequence) else steps})


async def _opened(url: str) -> Store:
    store = await open_store(url).__aenter__()
    try:
        await store.migrate()
    except BaseException:
        await store.__aexit__(None, None, None)
        raise
    return store
