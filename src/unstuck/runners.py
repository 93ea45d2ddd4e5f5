"""How a handler is run: a coroutine function on the event loop, a plain one in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from unstuck.context import Context, enter
from unstuck.errors import Permanent

Runner = Callable[[Callable[..., Any], Mapping[str, Any], Context], Awaitable[Any]]


async def on_loop(function: Callable[..., Any], arguments: Mapping[str, Any], context: Context) -> Any:
    enter(context)
    return await function(**arguments)


class Threads:
    """A pool with one thread for each job that may run at a time."""

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="unstuck-job")

    async def run(self, function: Callable[..., Any], arguments: Mapping[str, Any], context: Context) -> Any:
        enter(context)
        call = partial(contextvars.copy_context().run, function, **arguments)
        future = asyncio.get_running_loop().run_in_executor(self._pool, _guarded, call)
        try:
            result = await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped. Its place is taken until it ends, or the next job would wait behind it.
            await asyncio.wait([future])
            future.exception()
            raise
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise Permanent(
                f"{function.__name__} is no coroutine function but returned an awaitable: make it 'async def'"
            )
        return result

    def close(self) -> None:
        """Threads cannot be stopped: one that is still busy ends with the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class HandlerExitError(Exception):
    """A handler raised something that is meant to end a thread or a program."""


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # no future takes it, and whoever waits for one would wait for ever
        raise HandlerExitError("the handler raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise HandlerExitError(f"the handler raised {type(error).__name__}: {error}") from error
