"""How a handler is run: a coroutine function on the event loop, a plain one in a thread, or in a process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from unstuck.app.context import Context, enter
from unstuck.app.handler import Handler
from unstuck.protocol.errors import ConfigError, Transient
from unstuck.worker.call_result import CallResult, awaited, called
from unstuck.worker.dependencies import Dependencies, Lane
from unstuck.worker.forks import end_unless
from unstuck.worker.isolation.parent import CANCEL_PATIENCE, Isolation

log = logging.getLogger("unstuck.worker")

Contexts = tuple[Context, ...]


class Runners:
    """All the ways to run a handler. ``wakeup`` is set when a thread ends that nobody waited for any more."""

    def __init__(
        self, size: int, isolation: Isolation, dependencies: Dependencies, wakeup: asyncio.Event
    ) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="unstuck-job")
        self._isolation = isolation
        self._dependencies = dependencies
        self._wakeup = wakeup
        self._pid = os.getpid()
        self.abandoned = 0  # threads that still run a job whose time was up

    async def run(self, handler: Handler, arguments: Mapping[str, Any], contexts: Contexts) -> Any:
        """The handler's result, within the time that its job has."""
        timeout = contexts[0].job.timeout
        alone = isolated(handler, contexts[0])
        if handler.is_async and timeout is None and handler.stall is None and not (alone or handler.needs):
            if (permit := contexts[0].permit) is not None:
                await permit.ready()
            enter(contexts)  # the usual case, without a detour
            try:
                return await handler.function(**arguments)
            finally:
                end_unless(self._pid)
        if contexts[0].job.crashes and not alone:
            log.warning(
                "job %s crashed before and cannot be isolated: %s is not at module level",
                contexts[0].id,
                handler.hidden,
            )
        if alone:
            if self._dependencies.replaces(handler):
                raise ConfigError(
                    f"task {handler.task!r} runs in a process of its own, where nothing can replace its dependencies: "
                    "test the function itself, called with what it needs"
                )
            work = self._isolation.run(handler, contexts[0])
        elif handler.needs:
            work = self._supplied(handler, arguments, contexts)
        elif handler.is_async:
            work = self._on_loop(handler, arguments, contexts)
        else:
            work = self._in_thread(handler, arguments, contexts)
        if timeout is None and handler.stall is None:
            return await work
        return await self._within(work, contexts, timeout, handler.stall)

    async def close(self) -> int:
        """Threads cannot be stopped: one that is still busy ends with the process. Returns how many calls did not end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        try:
            return await self._dependencies.close()
        finally:
            await self._isolation.close()

    async def _supplied(self, handler: Handler, arguments: Mapping[str, Any], contexts: Contexts) -> Any:
        """Inside of what its dependencies make."""
        enter(contexts)
        lane = Lane()

        async def work(values: dict[str, Any]) -> Any:
            if handler.is_async:
                return await self._on_loop(handler, {**arguments, **values}, contexts)
            return await self._in_thread(handler, {**arguments, **values}, contexts, lane.thread)

        try:
            return await self._dependencies.around(handler, lane, work)
        finally:
            end_unless(self._pid)

    async def _on_loop(self, handler: Handler, arguments: Mapping[str, Any], contexts: Contexts) -> Any:
        if (permit := contexts[0].permit) is not None:
            await permit.ready()
        enter(contexts)
        try:
            return await handler.function(**arguments)
        finally:
            end_unless(self._pid)

    async def _in_thread(
        self,
        handler: Handler,
        arguments: Mapping[str, Any],
        contexts: Contexts,
        thread: Executor | None = None,
    ) -> Any:
        """In any thread, or in the one that its dependencies belong to, which are not left before it ends."""
        enter(contexts)
        permit = contexts[0].permit
        until = math.inf if permit is None else await permit.ready()
        call = partial(_called, partial(handler.function, **arguments), until, self._pid)
        future = asyncio.get_running_loop().run_in_executor(
            thread or self._threads, contextvars.copy_context().run, call
        )
        try:
            ending = await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Its place is taken until it ends, or the next job would wait behind it.
            if contexts[0].overdue and not handler.needs:
                self.abandoned += 1
                future.add_done_callback(self._ended)
            else:
                await self._outlast(future)
            raise
        if ending is None:
            assert permit is not None
            permit.late()
            return await self._in_thread(handler, arguments, contexts, thread)
        return handler.answer(ending.result())

    async def _within(
        self, work: Coroutine[Any, Any, Any], contexts: Contexts, timeout: float | None, stall: float | None
    ) -> Any:
        """The result of the work, unless it takes too long or reports no progress for too long."""
        task = asyncio.create_task(awaited(work))
        permit, called = contexts[0].permit, time.monotonic()
        try:
            while True:
                began = called + (0.0 if permit is None else permit.waited)
                ends = {}
                if timeout is not None:
                    ends["timeout"] = began + timeout
                if stall is not None:
                    ends["stalled"] = max(began, *(context.reported_at for context in contexts)) + stall
                code, end = min(ends.items(), key=lambda item: item[1])
                if (left := end - time.monotonic()) <= 0:
                    break
                done, _ = await asyncio.wait([task], timeout=max(left, 0.01))
                if done:
                    return task.result().result()
        except asyncio.CancelledError:
            task.cancel()
            await self._outlast(task)
            raise
        for context in contexts:
            context.cancelled = context.overdue = True
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_PATIENCE)
        if not task.done():  # it does not listen: as with a thread, its place is taken until it ends
            self.abandoned += 1
            task.add_done_callback(self._ended)
        why = (
            f"took longer than {timeout:g} s"
            if code == "timeout"
            else f"reported no progress for {stall:g} s"
        )
        raise Transient(f"the handler {why}", code=code)

    async def _outlast(self, work: asyncio.Future[Any]) -> None:
        """Wait for the end of what was cancelled. If we are cancelled, too, its place is taken until it ends."""
        try:
            await asyncio.wait([work])
        finally:
            if not work.done():
                self.abandoned += 1
                work.add_done_callback(self._ended)
            elif not work.cancelled():
                work.exception()

    def _ended(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()
        self.abandoned -= 1
        self._wakeup.set()


def isolated(handler: Handler, context: Context) -> bool:
    """A job that has crashed before runs alone, so that it takes nobody with it again."""
    return handler.isolate or (context.job.crashes > 0 and not handler.hidden)


def _called(call: Callable[[], Any], until: float, pid: int) -> CallResult | None:
    """How the call ended; None if it was not made, because its token was too old by then."""
    return None if time.monotonic() > until else called(call, pid)
