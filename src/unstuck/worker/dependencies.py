"""Dependencies: what handlers need is made before they are called, and left when they have ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, suppress
from functools import partial
from inspect import iscoroutine
from types import TracebackType
from typing import Any

from unstuck.app.dependencies import Dependency, Function, Kind, Need, Needs, name_of
from unstuck.app.handler import Handler
from unstuck.background import PATIENCE
from unstuck.protocol.errors import Transient
from unstuck.worker.call_result import CallResult, called

log = logging.getLogger("unstuck.worker")

Values = Mapping[Dependency, Any]
Caller = Callable[[Callable[[], Any]], Awaitable[Any]]
Work = Callable[[dict[str, Any]], Awaitable[Any]]


class Dependencies:
    """Those of one worker: it makes the values that last as long as itself, and has them made that a job needs.

    ``instead`` has functions that are called in the place of others, in a test.
    """

    def __init__(self, instead: Mapping[Function, Function]) -> None:
        self._instead = instead
        self._replaced: dict[Handler, Needs] = {}
        self._shared = Shared()

    def replaces(self, handler: Handler) -> bool:
        """Whether something else is called for what this handler needs."""
        return not self._instead.keys().isdisjoint(handler.needs.functions)

    async def around(self, handler: Handler, lane: Lane, work: Work) -> Any:
        """The result of the work, which is called with what fills the handler's parameters."""
        needs = self._needs(handler)
        try:
            shared = {need.dependency: await self._shared.get(need) for need in needs.order if need.of_worker}
            return await around(needs, lane.call, work, shared)
        finally:
            lane.close()

    async def close(self) -> int:
        """Leave what was made for the worker; returns how many calls did not end."""
        return await self._shared.close()

    def _needs(self, handler: Handler) -> Needs:
        if not self._instead:
            return handler.needs
        if handler not in self._replaced:
            self._replaced[handler] = Needs(handler.function, f"task {handler.task!r}", self._instead)
        return self._replaced[handler]


async def around(needs: Needs, call: Caller, work: Work, made: Values = {}) -> Any:  # noqa: B006 - only read
    """The result of the work; what is needed for it and not made yet is made before, and left after it.

    An error of the work reaches each generator where it yields. One that swallows it does not change that it failed.
    """
    values = dict(made)
    failed: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            for need in needs.order:
                if need.dependency not in values:
                    values[need.dependency] = await make(need, values, call, stack)
            return await work({name: values[each] for name, each in needs.parameters.items()})
        except BaseException as error:
            failed = error
            raise
    raise failed


async def make(need: Need, values: Values, call: Caller, stack: AsyncExitStack) -> Any:
    """The value of a dependency, from those before it; the stack leaves it again. ``call`` makes calls that may block."""
    calling = partial(need.function, **{name: values[each] for name, each in need.fills.items()})
    match need.kind:
        case Kind.COROUTINE:
            return await calling()
        case Kind.ASYNC_CONTEXT:
            return await stack.enter_async_context(calling())
        case Kind.CONTEXT:
            return await stack.enter_async_context(_Blocking(calling(), call))
        case Kind.PLAIN:
            value = await call(calling)
            return (
                await value if iscoroutine(value) else value
            )  # of an async def behind a lambda or a decorator


class Lane:
    """A thread for all blocking calls of one job, one after another: some things belong to the thread that made them."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._context = contextvars.copy_context()
        self._pid = os.getpid()

    @property
    def thread(self) -> Executor | None:
        """None as long as no call was made."""
        return self._thread

    async def call(self, call: Callable[[], Any]) -> Any:
        """Its result. A caller that is cancelled waits for the end of the call, which nobody can stop."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="unstuck-dependency")
        ending = asyncio.get_running_loop().run_in_executor(
            self._thread, self._context.run, called, call, self._pid
        )
        try:
            return (await asyncio.shield(ending)).result()
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    def close(self) -> None:
        """The thread ends after the calls that were made."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


class _Blocking(AbstractAsyncContextManager[Any]):
    """A plain context manager that is entered and left by calls that may block."""

    def __init__(self, manager: AbstractContextManager[Any], call: Caller) -> None:
        self._manager = manager
        self._call = call
        self._entered = False

    async def __aenter__(self) -> Any:
        try:
            return await self._call(self._enter)
        except asyncio.CancelledError as error:
            if self._entered:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> bool | None:
        swallowed: bool | None = await self._call(partial(self._manager.__exit__, kind, error, stack))
        return swallowed

    def _enter(self) -> Any:
        value = self._manager.__enter__()
        self._entered = True
        return value


class Shared:
    """The values that last as long as the worker. Each is made when it is first needed.

    One task makes and leaves them all: some things must be left by the task that entered them, and no job's end may
    interrupt what others wait for.
    """

    def __init__(self) -> None:
        self._values: dict[Dependency, Any] = {}
        self._orders: asyncio.Queue[tuple[Need, asyncio.Future[CallResult]] | None] = asyncio.Queue()
        self._context = contextvars.copy_context()  # without a job
        self._keeping: asyncio.Task[None] | None = None
        self._making = False

    async def get(self, need: Need) -> Any:
        if need.dependency in self._values:
            return self._values[need.dependency]
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep(), context=self._context)
        made: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self._orders.put_nowait((need, made))
        both: set[asyncio.Future[Any]] = {made, self._keeping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            raise Transient(
                f"dependency {name_of(need.function)!r} of the worker cannot be made: what they all share has ended"
            )
        return made.result().result()

    async def close(self) -> int:
        """Leave what was made, the last one first. What is being made is given up, as no job waits for it any more."""
        if self._keeping is None:
            return 0
        self._orders.put_nowait(None)
        if self._making:
            self._keeping.cancel()
            await asyncio.wait([self._keeping], timeout=PATIENCE)
            if self._making:
                log.error("a dependency of the worker is still being made: going on without it")
                return 1
        await asyncio.wait([self._keeping])
        if not self._keeping.cancelled():
            self._keeping.result()
        return 0

    async def _keep(self) -> None:
        lane = Lane()
        try:
            async with AsyncExitStack() as stack:
                with suppress(asyncio.CancelledError):  # what was made is left as usual
                    while (order := await self._orders.get()) is not None:
                        need, made = order
                        ending = await self._made(need, lane, stack)
                        if not made.done():  # its job may have been cancelled meanwhile
                            made.set_result(ending)
        finally:
            self._values.clear()
            lane.close()

    async def _made(self, need: Need, lane: Lane, stack: AsyncExitStack) -> CallResult:
        self._making = True
        try:
            if need.dependency not in self._values:
                self._values[need.dependency] = await make(need, self._values, lane.call, stack)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _to_end():
                raise
            return CallResult(None, error)  # the failure of the job that needs it; the next one tries again
        finally:
            self._making = False
        return CallResult(self._values[need.dependency])


def _to_end() -> bool:
    """Whether this task was cancelled, and not something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
