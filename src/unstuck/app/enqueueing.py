"""Enqueueing: the ways in which an app enqueues jobs, each inside of what the application runs around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from unstuck.app.call import Call
from unstuck.app.handle import Handle, SyncHandle
from unstuck.app.hooks import AroundEnqueue, check_around_enqueue, enqueueing
from unstuck.app.sync import portal
from unstuck.config.checks import shown
from unstuck.config.job_options import JobOptions, Options
from unstuck.config.retry import Retry
from unstuck.operations.jobs import Jobs
from unstuck.operations.new_job import job_by_name
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Enqueued, Json
from unstuck.protocol.store import Store
from unstuck.stores import joinable
from unstuck.text.durations import in_seconds

if TYPE_CHECKING:
    from unstuck.app.task import Task

R = TypeVar("R")


class Enqueueing(ABC):
    url: str
    tasks: dict[str, Task[Any, Any]]

    def __init__(self) -> None:
        self._around_enqueue: list[AroundEnqueue] = []
        self._own_transactions = False

    @abstractmethod
    async def store(self) -> Store: ...

    @abstractmethod
    async def _jobs(self) -> Jobs: ...

    @abstractmethod
    def import_tasks(self) -> None: ...

    def around_enqueue(self, function: AroundEnqueue) -> AroundEnqueue:
        """A decorator: this context manager is entered with the calls that are to be enqueued, and left when they are stored::

            @app.around_enqueue
            @contextmanager
            def counted(calls: Sequence[Call[Any]]) -> Iterator[None]:
                yield
                enqueued.inc(len(calls))

        What it raises refuses them. The first one registered is the outermost.
        """
        check_around_enqueue(function)
        self._around_enqueue.append(function)
        return function

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue jobs of any tasks in one step: all of them are stored, or none."""
        listed = _listed(calls)
        jobs = await self._jobs()
        with enqueueing(self._around_enqueue, listed):
            answers = await jobs.enqueue([call.job for call in listed])
        return self._handles(answers, listed)

    async def send(
        self,
        task: str,
        arguments: Mapping[str, Json],
        *,
        queue: str | None = None,
        retry: Retry | int | None = None,
        **options: Unpack[JobOptions],
    ) -> Handle[Any]:
        """Enqueue a job of a task by its name, for workers with other code: ``await app.send("resize", {"n": 5}, queue="media")``.

        The arguments are checked when it runs. A task of this app brings its own queue and retries, and its arguments are
        checked here.
        """
        self.import_tasks()
        given: Any = options
        lengths = ("delay", "debounce", "throttle")
        seconds = {name: in_seconds(given[name]) for name in lengths if given.get(name) is not None}
        job = job_by_name(self.tasks, task, arguments, Options(**(given | seconds)), queue=queue, retry=retry)
        known = self.tasks.get(task)
        call: Call[Any] = Call(job, known.handler.result if known else None)
        [handle] = await self.enqueue_many([call])
        return handle

    def send_sync(
        self,
        task: str,
        arguments: Mapping[str, Json],
        *,
        queue: str | None = None,
        retry: Retry | int | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncHandle[Any]:
        """As ``send``, for code without an event loop."""
        return SyncHandle(portal().run(self.send(task, arguments, queue=queue, retry=retry, **options)))

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        handles = portal().run(self.enqueue_many(_listed(calls)))
        return [SyncHandle(handle) for handle in handles]

    async def enqueue_in(self, connection: Any, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Enqueue jobs inside the transaction of an asynchronous connection of yours, on PostgreSQL.

        The jobs exist when you commit; until then nobody sees them, not even their handles. Connections and sessions
        of psycopg, asyncpg and SQLAlchemy are supported. You end the transaction yourself.
        """
        if self._own_transactions:
            return await self.enqueue_many(calls)
        store = joinable(await self.store(), self.url)
        listed = _listed(calls)
        with enqueueing(self._around_enqueue, listed):
            answers = await store.enqueue_in(connection, [call.job for call in listed])
        return self._handles(answers, listed)

    def enqueue_in_sync(self, connection: Any, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        """As ``enqueue_in``, on a synchronous connection: of psycopg, psycopg2, SQLAlchemy or Django."""
        # No warning inside an event loop: the connection itself blocks the loop, too.
        listed = _listed(calls)
        if self._own_transactions:
            return [SyncHandle(each) for each in portal(inside_a_loop=True).run(self.enqueue_many(listed))]
        store = joinable(portal(inside_a_loop=True).run(self.store()), self.url)
        with enqueueing(self._around_enqueue, listed):
            answers = store.enqueue_in_sync(connection, [call.job for call in listed])
        return [SyncHandle(handle) for handle in self._handles(answers, listed)]

    def _handles(self, answers: Iterable[Enqueued], calls: Iterable[Call[R]]) -> list[Handle[R]]:
        return [
            Handle(self._jobs, *pair) for pair in zip(answers, (call.result for call in calls), strict=True)
        ]


def _listed(calls: Iterable[Call[R]]) -> list[Call[R]]:
    if isinstance(calls, Call):
        raise ConfigError("a single call is not a list of calls: write [task.call(…)]")
    found = list(calls)
    for call in found:
        if not isinstance(call, Call):
            raise ConfigError(f"{shown(call)} is not a call: give a task.call(…)")
    return found
