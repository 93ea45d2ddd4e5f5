"""CallResult: how a call ended, as a value that any future can carry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from unstuck.worker.forks import end_unless


class CallResult(NamedTuple):
    """How a call ended, as a value: on their way through a future or a task some exceptions become others, are
    refused, or end the event loop."""

    value: Any
    error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def called(call: Callable[[], Any], pid: int) -> CallResult:
    """How the call ended, in this process and not in a child that it forked."""
    try:
        return CallResult(call())
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the job is performed
        return CallResult(None, error)
    finally:
        end_unless(pid)


async def awaited(work: Awaitable[Any]) -> CallResult:
    try:
        return CallResult(await work)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        return CallResult(None, error)
