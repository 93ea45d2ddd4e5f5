"""Waiting for facts, with a deadline, instead of sleeping and hoping.

A deadline counts only the time in which we could look: if this process stood still, because the machine had others to
run, so did what it waits for, or nobody was there to see it.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL = 0.01
STILL = 0.1  # seconds that a pause may take longer than it should before we take it that we stood still
LAST_LOOK = 1.0  # seconds for an async predicate that is asked when the time is up, or almost


def until(predicate: Callable[[], T | None], timeout: float, what: str, log: Path | None = None) -> T:
    """Poll until the predicate answers something true, and return that.

    The AssertionError at the deadline names ``what`` was waited for and shows how ``log`` ends.
    """
    deadline = time.monotonic() + timeout
    while True:
        last = time.monotonic() > deadline  # read before asking: who took long to answer is asked once more
        if answer := predicate():
            return answer
        if last:
            raise AssertionError(_overdue(what, timeout, answer, log))
        paused = time.monotonic()
        time.sleep(POLL)
        deadline += _stood_still(paused)


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
    deadline = time.monotonic() + timeout
    answer = None
    while True:
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), min(timeout, LAST_LOOK))) as limit:
                answer = await _ask(predicate)
        except TimeoutError:
            if not limit.expired():
                raise  # the predicate's own
            late = asyncio.get_running_loop().time() - (limit.when() or 0.0)
            if late <= STILL:
                raise AssertionError(_overdue(what, timeout, answer, log)) from None
            deadline += late
            continue
        if answer:
            return answer
        if (paused := time.monotonic()) > deadline:
            raise AssertionError(_overdue(what, timeout, answer, log))
        await asyncio.sleep(POLL)
        deadline += _stood_still(paused)


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, or a word on why there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:]) or "(empty)"


def _stood_still(since: float) -> float:
    """For how many seconds we did so in a pause that began then."""
    late = time.monotonic() - since - POLL
    return late if late > STILL else 0.0


async def _ask(predicate: Callable[[], Any]) -> Any:
    answer = predicate()
    return await answer if inspect.isawaitable(answer) else answer


def _overdue(what: str, timeout: float, answer: object, log: Path | None) -> str:
    ending = f"\n--- end of {log}\n{tail(log)}" if log else ""
    return f"waited {timeout:g} s for {what}; last answer: {answer!r}{ending}"
