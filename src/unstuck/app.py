"""Unstuck: the application's face. Register tasks, enqueue jobs, follow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from msgspec import structs

from unstuck.call import Call
from unstuck.errors import ConfigError
from unstuck.handle import Handle, SyncHandle
from unstuck.handler import Handler
from unstuck.ids import digest, keyed_id, new_id
from unstuck.jobs import Jobs
from unstuck.model import NewJob
from unstuck.options import Options
from unstuck.policy import Policy, Retry, queue_name, task_name
from unstuck.store import Store
from unstuck.stores import open_store
from unstuck.sync import portal

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that can be run as a job. Called directly it is just the function."""

    def __init__(
        self, app: Unstuck, handler: Handler, name: str, queue: str, policy: Policy, retry: Retry
    ) -> None:
        self.app = app
        self.handler = handler
        self.name = name
        self.queue = queue
        self._pattern = NewJob(  # what all jobs of this task have in common
            queue=queue,
            task=name,
            id="",
            max_attempts=retry.attempts,
            max_crashes=policy.max_crashes,
            backoff=retry.backoff,
            lapse_backoff=policy.lapse_backoff,
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
    ) -> Task[P, R]:
        """The same task with other options: ``send.options(delay=60, priority=5).enqueue(…)``."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        twin = object.__new__(Task)
        twin.__dict__.update(self.__dict__)
        chosen = Options(key=key, again=again, priority=priority, delay=seconds, run_at=run_at)
        twin._pattern = structs.replace(self._pattern, **asdict(chosen))
        return twin

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The job that ``enqueue`` would make, for ``enqueue_many`` and ``then``; checked here and now."""
        payload = self.handler.arguments.pack(args, kwargs)
        if (key := self._pattern.key) is None:
            return Call(structs.replace(self._pattern, id=new_id(), payload=payload))
        said = digest(self.name, bytes(payload))
        return Call(
            structs.replace(self._pattern, id=keyed_id(self.queue, key), payload=payload, digest=said)
        )

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns when the job is safely stored."""
        [handle] = await self.app.enqueue_many([self.call(*args, **kwargs)])
        return handle

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """As ``enqueue``, for code without an event loop."""
        [handle] = self.app.enqueue_many_sync([self.call(*args, **kwargs)])
        return handle


class Unstuck:
    """A set of tasks and the store their jobs live in.

    Opens the store when it is first needed; ``async with app:`` opens and closes it at a known time.
    """

    def __init__(self, store: str) -> None:
        open_store(store)  # a wrong URL is told now, not at the first job
        self.url = store
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.queues: dict[str, Policy] = {}
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Store]] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        lease: float = 20.0,
        heartbeat: float = 5.0,
        retry: Retry | int | None = None,
        max_crashes: int | None = None,
        lapse_backoff: Sequence[float] = (),
    ) -> _Decorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        lease: float = 20.0,
        heartbeat: float = 5.0,
        retry: Retry | int | None = None,
        max_crashes: int | None = None,
        lapse_backoff: Sequence[float] = (),
    ) -> Any:
        """Make a task of a function: ``async def`` runs on the event loop, ``def`` in a thread.

        ``retry`` is a number of attempts or a Retry. Lease, heartbeat and the crash rules belong to the
        queue: tasks that share a queue must agree on them.
        """
        if not isinstance(retry, Retry | int | None):
            raise ConfigError(f"retry is {retry!r}: it must be a number of attempts or a Retry(…)")
        steps: Any = tuple(lapse_backoff) if isinstance(lapse_backoff, Sequence) else lapse_backoff
        policy = Policy(lease=lease, heartbeat=heartbeat, max_crashes=max_crashes, lapse_backoff=steps)
        tries = Retry(attempts=retry) if isinstance(retry, int) else retry or Retry()

        def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
            return self._register(function, name, queue, policy, tries)

        return decorate if function is None else decorate(function)

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue jobs of any tasks in one step: all of them are stored, or none."""
        jobs = await self.jobs()
        answers = await jobs.enqueue([call.job for call in calls])
        return [Handle(self.jobs, answer) for answer in answers]

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        handles = portal().run(self.enqueue_many(list(calls)))
        return [SyncHandle(handle) for handle in handles]

    def policies(self, queues: Iterable[str] | None = None) -> dict[str, Policy]:
        """The policies of these queues, or of all that tasks use."""
        wanted = list(self.queues) if queues is None else list(queues)
        if not wanted:
            raise ConfigError("this app has no tasks: register one with @app.task before you start a worker")
        for name in wanted:
            if name not in self.queues:
                known = ", ".join(sorted(self.queues))
                raise ConfigError(f"no task of this app uses queue {name!r}: it has {known}")
        return {name: self.queues[name] for name in wanted}

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
            async with self:
                yield
        finally:
            self.url = own

    async def __aenter__(self) -> Self:
        await self.store()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self, function: Callable[..., Any], name: str | None, queue: str, policy: Policy, retry: Retry
    ) -> Task[Any, Any]:
        named = task_name(name or getattr(function, "__name__", ""))
        if named in self.tasks:
            raise ConfigError(f"task {named!r} is registered already: give one of the two another name=")
        known = self.queues.get(queue_name(queue), policy)
        if differences := known.differences(policy):
            raise ConfigError(
                f"task {named!r} disagrees with the other tasks of queue {queue!r} in {', '.join(differences)}: "
                "make them agree, or give it a queue of its own"
            )
        task: Task[Any, Any] = Task(self, Handler(function, named), named, queue, policy, retry)
        self.queues[queue] = policy
        self.tasks[named] = task
        return task


async def _opened(url: str) -> Store:
    store = await open_store(url).__aenter__()
    try:
        await store.migrate()
    except BaseException:
        await store.__aexit__(None, None, None)
        raise
    return store


class _Decorator:
    """Only for the type checker: what ``@app.task(…)`` returns."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        raise NotImplementedError
