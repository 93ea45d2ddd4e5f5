"""Handles: follow a job that was enqueued."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from unstuck.app.context import in_handler
from unstuck.app.payload import Result, dropped
from unstuck.app.sync import portal
from unstuck.config.checks import YEAR, number
from unstuck.operations.jobs import Jobs
from unstuck.protocol.errors import ConfigError, JobFailed, JobPending, PayloadError
from unstuck.protocol.job import Category, Enqueued, Failure, Job, Json, Ref, Status
from unstuck.text.durations import Seconds

R_co = TypeVar("R_co", covariant=True)
SLOWEST_LOOK = 0.25


class Handle(Struct, Generic[R_co], frozen=True, gc=False):
    """A job that was enqueued. ``created`` is false if a job with its key existed; it was left as it was."""

    _jobs: Callable[[], Awaitable[Jobs]]
    _enqueued: Enqueued
    _result: Result | None = None

    def __repr__(self) -> str:
        return f"Handle(queue={self.queue!r}, id={self.id!r})"

    @property
    def ref(self) -> Ref:
        return self._enqueued.ref

    @property
    def queue(self) -> str:
        return self._enqueued.queue

    @property
    def id(self) -> str:
        return self._enqueued.id

    @property
    def created(self) -> bool:
        return self._enqueued.created

    @property
    def same_content(self) -> bool:
        return self._enqueued.same

    async def job(self) -> Job:
        """All that the store knows of the job."""
        return await (await self._jobs()).get(self.id, self.queue)

    async def status(self) -> Status:
        return (await self.job()).status

    async def result(self, timeout: Seconds | None = None, *, allow_wait: bool = False) -> R_co:
        """Wait for the job and return what its handler returned, read from JSON as the handler's annotation says.

        Raises JobFailed if it failed, JobPending (a TimeoutError) if it has not finished in time, and
        PayloadError if the result does not fit the annotation, or was too large to be kept. A handler may not wait for
        another job, unless ``allow_wait`` says that it may; with ``timeout=0`` nobody waits.
        """
        if in_handler() and timeout != 0 and not allow_wait:
            raise ConfigError(
                f"a handler that waits for job {self.id} keeps its slot, and the job may wait for just that slot: let it "
                "follow with current_job().then(task.call(…)), or wait all the same with result(allow_wait=True)"
            )
        patience = None if timeout is None else number("timeout", timeout, 0.0, 10 * YEAR)
        end = None if patience is None else time.monotonic() + patience
        pause = 0.005
        while True:
            job = await self.job()
            if job.status is Status.COMPLETED:
                return cast(R_co, self._read(job.result))
            if job.status is Status.FAILED:
                raise JobFailed(self.id, job.error or _unexplained())
            if end is not None and time.monotonic() + pause > end:
                raise JobPending(
                    f"job {self.id} is still {job.status} after {patience:g} s: {await self.explain()}"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, SLOWEST_LOOK)

    def _read(self, result: Json) -> Any:
        if why := dropped(result):
            raise PayloadError(
                f"job {self.id} is completed, but {why}: store the data elsewhere and return its address"
            )
        return self._result.read(result, f"job {self.id}") if self._result else result

    async def cancel(self) -> bool:
        """Cancel the job, even while it runs; false if it was finished already."""
        return await (await self._jobs()).cancel([self.id], self.queue) == 1

    async def explain(self) -> str:
        """Why the job is where it is and what can be done about it, in a sentence or two."""
        return await (await self._jobs()).explain(self.id, self.queue)


class SyncHandle(Generic[R_co]):
    """The same for code without an event loop: every call waits for its answer."""

    def __init__(self, handle: Handle[R_co]) -> None:
        self._handle = handle
        self.ref, self.queue, self.id = handle.ref, handle.queue, handle.id
        self.created, self.same_content = handle.created, handle.same_content

    def __repr__(self) -> str:
        return f"SyncHandle(queue={self.queue!r}, id={self.id!r})"

    def job(self) -> Job:
        return portal().run(self._handle.job())

    def status(self) -> Status:
        return portal().run(self._handle.status())

    def result(self, timeout: Seconds | None = None, *, allow_wait: bool = False) -> R_co:
        return portal().run(self._handle.result(timeout, allow_wait=allow_wait))

    def cancel(self) -> bool:
        return portal().run(self._handle.cancel())

    def explain(self) -> str:
        return portal().run(self._handle.explain())


def _unexplained() -> Failure:
    return Failure(category=Category.PERMANENT, code="unknown", message="the store has no error for it")
