"""How a handler is run: a coroutine function on the event loop, a plain one in a thread, or in a process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from unstuck.context import Context, enter
from unstuck.errors import Transient
from unstuck.handler import Handler
from unstuck.isolate import DEAF, Isolation

log = logging.getLogger("unstuck.worker")

Contexts = tuple[Context, ...]


class Runners:
    """All the ways to run a handler. ``freed`` is called when a thread ends that nobody waited for any more.

    ``rated`` has the queues whose starts need a token, and ``token`` waits for another one.
    """

    def __init__(
        self,
        size: int,
        freed: Callable[[], None],
        isolation: Isolation,
        rated: Mapping[str, str],
        token: Callable[[str], Awaitable[None]],
    ) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="unstuck-job")
        self._isolation = isolation
        self._freed = freed
        self._rated, self._token = rated, token
        self.abandoned = 0  # threads that still run a job whose time was up

    async def run(self, handler: Handler, arguments: Mapping[str, Any], contexts: Contexts) -> Any:
        """The handler's result, within the time that its job has."""
        timeout = contexts[0].job.timeout
        alone = isolated(handler, contexts[0])
        if handler.is_async and timeout is None and handler.stall is None and not alone:
            enter(contexts)  # the usual case, without a detour
            return await handler.function(**arguments)
        if contexts[0].job.crashes and not alone:
            log.warning(
                "job %s crashed before and cannot be isolated: its function is not at module level",
                contexts[0].id,
            )
        queue = contexts[0].job.queue
        if alone and queue in self._rated and await self._isolation.warm():
            # Its token was for a start at once. By now it may be out again, and somebody else's start close to ours.
            await self._token(queue)
        if alone:
            work = self._isolation.run(handler, contexts[0])
        elif handler.is_async:
            work = _on_loop(handler.function, arguments, contexts)
        else:
            work = self._in_thread(handler, arguments, contexts)
        if timeout is None and handler.stall is None:
            return await work
        return await self._within(work, contexts, timeout, handler.stall)

    async def close(self) -> None:
        """Threads cannot be stopped: one that is still busy ends with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._isolation.close()

    async def _in_thread(self, handler: Handler, arguments: Mapping[str, Any], contexts: Contexts) -> Any:
        enter(contexts)
        call = partial(contextvars.copy_context().run, handler.function, **arguments)
        future = asyncio.get_running_loop().run_in_executor(self._threads, _guarded, call)
        try:
            result = await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Its place is taken until it ends, or the next job would wait behind it.
            if contexts[0].overdue:
                self.abandoned += 1
                future.add_done_callback(self._ended)
            else:
                await asyncio.wait([future])
                future.exception()
            raise
        return handler.answer(result)

    async def _within(
        self, work: Coroutine[Any, Any, Any], contexts: Contexts, timeout: float | None, stall: float | None
    ) -> Any:
        """The result of the work, unless it takes too long or says nothing for too long."""
        task = asyncio.create_task(work)
        began = time.monotonic()
        try:
            while True:
                ends = {}
                if timeout is not None:
                    ends["timeout"] = began + timeout
                if stall is not None:
                    ends["stalled"] = max(began, *(context.said_at for context in contexts)) + stall
                code, end = min(ends.items(), key=lambda item: item[1])
                if (left := end - time.monotonic()) <= 0:
                    break
                done, _ = await asyncio.wait([task], timeout=left)
                if done:
                    return task.result()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        for context in contexts:
            context.cancelled = context.overdue = True
        task.cancel()
        await asyncio.wait([task], timeout=DEAF)
        if not task.done():  # it does not listen: as with a thread, its place is taken until it ends
            self.abandoned += 1
            task.add_done_callback(self._ended)
        told = f"took longer than {timeout:g} s" if code == "timeout" else f"told no progress for {stall:g} s"
        raise Transient(f"the handler {told}", code=code)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()
        self.abandoned -= 1
        self._freed()


def isolated(handler: Handler, context: Context) -> bool:
    """A job that has crashed before runs alone, so that it takes nobody with it again."""
    return handler.isolate or (context.job.crashes > 0 and handler.importable)


class HandlerExitError(Exception):
    """A handler raised something that is meant to end a thread or a program."""


async def _on_loop(function: Callable[..., Any], arguments: Mapping[str, Any], contexts: Contexts) -> Any:
    enter(contexts)
    return await function(**arguments)


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # no future takes it, and whoever waits for one would wait for ever
        raise HandlerExitError("the handler raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise HandlerExitError(f"the handler raised {type(error).__name__}: {error}") from error
