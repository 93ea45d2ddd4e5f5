"""Waiting for facts, with a deadline, instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL = 0.01


def until(predicate: Callable[[], T | None], timeout: float, what: str, log: Path | None = None) -> T:
    """Poll until the predicate answers something true, and return that.

    The AssertionError at the deadline names ``what`` was waited for and shows how ``log`` ends.
    """
    deadline = time.monotonic() + timeout
    while True:
        last = time.monotonic() > deadline  # read before asking: who was kept from asking asks once more
        if answer := predicate():
            return answer
        if last:
            raise AssertionError(_overdue(what, timeout, answer, log))
        time.sleep(POLL)


@overload
async def until_async(
    predicate: Callable[[], Awaitable[T | None]], timeout: float, what: str, log: Path | None = None
) -> T: ...


@overload
async def until_async(
    predicate: Callable[[], T | None], timeout: float, what: str, log: Path | None = None
) -> T: ...


async def until_async(
    predicate: Callable[[], Any], timeout: float, what: str, log: Path | None = None
) -> Any:
    """``until`` beside a running event loop. An async predicate that hangs is cancelled at the deadline."""
    answer = None
    try:
        async with asyncio.timeout(timeout) as limit:
            while not (answer := await _ask(predicate)):
                await asyncio.sleep(POLL)
            return answer
    except TimeoutError:
        if not limit.expired():
            raise  # the predicate's own
        raise AssertionError(_overdue(what, timeout, answer, log)) from None


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, or a word on why there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:]) or "(empty)"


async def _ask(predicate: Callable[[], Any]) -> Any:
    answer = predicate()
    return await answer if inspect.isawaitable(answer) else answer


def _overdue(what: str, timeout: float, answer: object, log: Path | None) -> str:
    ending = f"\n--- end of {log}\n{tail(log)}" if log else ""
    return f"waited {timeout:g} s for {what}; last answer: {answer!r}{ending}"
