"""UnstuckBackend: Django's side of the bargain, enqueueing and looking up."""

from __future__ import annotations

from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from django.core import checks
from django.db import connections
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskResult, TaskResultStatus
from django.tasks.exceptions import InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued
from django.utils import timezone
from msgspec import structs

from unstuck import Call, ConfigError, Event, Job, TaskOptions, UnknownJob, Unstuck
from unstuck.app.sync import portal
from unstuck.contrib.django.address import same_database, store_url
from unstuck.contrib.django.results import Wanted, task_result
from unstuck.contrib.django.run import ASYNC, SYNC, run, run_async

# Of OPTIONS, what is none of ours: see @app.task.
_OURS = {"store", "database"}
_TASK_OPTIONS = TaskOptions.__optional_keys__ - {"name", "queue", "isolate"}
MOST_EVENTS = 1000


class UnstuckBackend(BaseTaskBackend):
    """Django's tasks as jobs of a store.

    OPTIONS: ``store`` is its URL, by default a schema in the database ``database`` ("default") of Django's. If
    the store is in one of Django's databases, enqueueing is part of the transaction that is open there. The rest
    is what ``@app.task`` takes: ``retry``, ``timeout``, ``lease`` … hold for all QUEUES of this backend.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if not self.queues:
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}] must name its QUEUES: workers take the queues they know"
            )
        if unknown := sorted(self.options.keys() - _OURS - _TASK_OPTIONS):
            known = ", ".join(sorted(_OURS | _TASK_OPTIONS))
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}] has the unknown option {unknown[0]!r}: there are {known}"
            )
        self._apps: dict[str, Unstuck] = {}
        try:
            self._app_of(self.options.get("store", "sqlite:///:memory:"))  # a wrong URL is reported now
        except ConfigError as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from error

    @property
    def app(self) -> Unstuck:
        """Not the same in tests, where Django gives its databases other names after this was made."""
        return self._app_of(self.url)

    @property
    def url(self) -> str:
        given: str | None = self.options.get("store")
        if given is not None:
            return given
        alias = self.options.get("database", "default")
        return store_url(alias, connections[alias].settings_dict)

    @property
    def database(self) -> str | None:
        """Which of Django's databases the store is in."""
        if "store" not in self.options or "database" in self.options:
            return str(self.options.get("database", "default"))
        for alias in connections:
            found = connections[alias]
            if found.vendor == "postgresql" and same_database(
                self.url, store_url(alias, found.settings_dict)
            ):
                return str(alias)
        return None

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        call = self._call(result)
        object.__setattr__(result, "id", call.job.id)
        if (database := self.database) is None:
            self.app.enqueue_many_sync([call])
        else:
            self.app.enqueue_in_sync(connections[database], [call])
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        job, events = portal().run(self._look(str(result_id)))
        if job.task not in {SYNC, ASYNC}:
            raise TaskResultDoesNotExist(result_id)
        try:
            return task_result(job, events)
        except ImportError as error:
            raise TaskResultDoesNotExist(f"{result_id}: its task is gone: {error}") from error

    def check(self, **_: Any) -> list[Any]:
        if self.database is not None:
            return []
        return [
            checks.Warning(
                f"The store of TASKS[{self.alias!r}] is in none of DATABASES: tasks are enqueued at once, even if "
                "the transaction around them is rolled back.",
                hint="Leave out the option 'store', or name the database that it is in as 'database'.",
                id="unstuck.W001",
            )
        ]

    async def _look(self, id_: str) -> tuple[Job, list[Event]]:
        jobs = await self.app.jobs()
        try:
            job = await jobs.get(id_)
        except UnknownJob:
            raise TaskResultDoesNotExist(id_) from None
        # A job that ended well at the first attempt has nothing to report about others.
        events = await jobs.events(job=job.ref, limit=MOST_EVENTS) if job.attempts > 1 or job.error else []
        return job, events

    def _call(self, result: TaskResult) -> Call[Any]:
        task = result.task
        runner = self.app.tasks[ASYNC if iscoroutinefunction(task.func) else SYNC]
        run_at = _aware(task.run_after)
        wanted = Wanted(
            path=task.module_path,
            args=result.args,
            kwargs=result.kwargs,
            backend=self.alias,
            priority=task.priority,
            run_after=run_at,
        )
        call = runner.options(priority=level(task.priority), run_at=run_at).call(wanted)
        return structs.replace(call, job=structs.replace(call.job, queue=task.queue_name))

    def _app_of(self, url: str) -> Unstuck:
        if url not in self._apps:
            app = Unstuck(url)
            options = {name: value for name, value in self.options.items() if name in _TASK_OPTIONS}
            own: Any = {name: options.pop(name) for name in ("retry", "timeout", "stall") if name in options}
            for queue in sorted(self.queues):
                app.queue(queue, **options)
            for name, function in ((SYNC, run), (ASYNC, run_async)):
                app.task(name=name, queue=min(self.queues), **own)(function)
            self._apps[url] = app
        return self._apps[url]


def level(priority: int) -> int:
    """Ours for one of Django's, in bands of twenty: -100 to -81 is 0, 0 to 19 is 5, 80 to 100 is 9."""
    return min((priority + 100) // 20, 9)


def _aware(when: datetime | None) -> datetime | None:
    if when is None or timezone.is_aware(when):
        return when
    aware: datetime = timezone.make_aware(when)
    return aware
