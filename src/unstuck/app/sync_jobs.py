"""SyncJobs: the methods of Jobs for code without an event loop, such as Flask, Django and plain threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from unstuck.app.sync import portal
from unstuck.operations.jobs import Jobs

P = ParamSpec("P")
T = TypeVar("T")


def _waits(
    method: Callable[Concatenate[Jobs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncJobs, P], T]:
    """The same method, signature and docstring, but the caller waits for the answer."""

    @wraps(method)
    def call(self: SyncJobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return await method(await self._jobs(), *args, **kwargs)

        return portal().run(work())

    return call


class SyncJobs:
    """``app.jobs_sync()`` gives it. Every method is that of :class:`Jobs` with the same name."""

    def __init__(self, jobs: Callable[[], Awaitable[Jobs]]) -> None:
        self._jobs = jobs

    @classmethod
    @contextmanager
    def open(cls, url: str, *, create: bool = False) -> Iterator[Self]:
        """As ``Jobs.open``. In a forked child it must be opened again."""
        opening = Jobs.open(url, create=create)

        async def enter() -> Jobs:
            return await opening.__aenter__()

        async def leave() -> None:
            await opening.__aexit__(None, None, None)

        async def opened() -> Jobs:
            return jobs

        jobs = portal().run(enter())
        try:
            yield cls(opened)
        finally:
            portal().run(leave())

    migrate = _waits(Jobs.migrate)
    enqueue = _waits(Jobs.enqueue)
    enqueue_task = _waits(Jobs.enqueue_task)
    get = _waits(Jobs.get)
    get_by_id_or_key = _waits(Jobs.get_by_id_or_key)
    find = _waits(Jobs.find)
    counts = _waits(Jobs.counts)
    now = _waits(Jobs.now)
    overview = _waits(Jobs.overview)
    get_queue_status = _waits(Jobs.get_queue_status)
    get_health_status = _waits(Jobs.get_health_status)
    strange = _waits(Jobs.strange)
    workers = _waits(Jobs.workers)
    schedules = _waits(Jobs.schedules)
    schedule = _waits(Jobs.schedule)
    add_schedule = _waits(Jobs.add_schedule)
    change_schedule = _waits(Jobs.change_schedule)
    pause_schedule = _waits(Jobs.pause_schedule)
    resume_schedule = _waits(Jobs.resume_schedule)
    run_schedule = _waits(Jobs.run_schedule)
    delete_schedule = _waits(Jobs.delete_schedule)
    events = _waits(Jobs.events)
    history = _waits(Jobs.history)
    cancel = _waits(Jobs.cancel)
    cancel_matching = _waits(Jobs.cancel_matching)
    held_by = _waits(Jobs.held_by)
    matching = _waits(Jobs.matching)
    retry = _waits(Jobs.retry)
    retry_failed_jobs = _waits(Jobs.retry_failed_jobs)
    release_jobs = _waits(Jobs.release_jobs)
    cleanup_jobs = _waits(Jobs.cleanup_jobs)
    recover = _waits(Jobs.recover)
    recover_stale_jobs = _waits(Jobs.recover_stale_jobs)
    checkup = _waits(Jobs.checkup)
    doctor = _waits(Jobs.doctor)
    metrics = _waits(Jobs.metrics)
    verify = _waits(Jobs.verify)
    pause = _waits(Jobs.pause)
    resume = _waits(Jobs.resume)
    explain = _waits(Jobs.explain)
    edit = _waits(Jobs.edit)
