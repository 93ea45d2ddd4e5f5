"""The producing side of a contestant as a command that prints what it measured as one JSON line.

Standard library only: it is imported inside every contestant's environment.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any, Protocol

from bench import marks

AT_ONCE = 20_000  # so that half a million jobs need not be in memory
WARM = 2_000
SHORTEST, LONGEST = 0.02, 0.05  # seconds between the jobs of the latency test


class Producer(Protocol):
    """How a contestant enqueues. Jobs are numbered from 0 and carry ``marks.PAD``."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def one(self, number: int) -> None:
        """Returns when the job is stored."""

    async def many(self, numbers: range) -> None:
        """The contestant's best way to store many jobs."""


async def _timed(producer: Producer, how: str, jobs: int) -> float:
    started = time.perf_counter()
    if how == "bulk":
        await producer.many(range(jobs))
    elif how == "single":
        for number in range(jobs):
            await producer.one(number)
    else:  # crowd: fifty tasks that enqueue at the same time
        numbers = iter(range(jobs))

        async def enqueue() -> None:
            for number in numbers:
                await producer.one(number)

        await asyncio.gather(*(enqueue() for _ in range(50)))
    return time.perf_counter() - started


async def _spaced(producer: Producer, jobs: int) -> list[int]:
    """When each enqueue began, in nanoseconds. The gaps are uneven, so that no poll can fall in step."""
    await producer.one(-1)
    while not marks.count():  # noqa: ASYNC110 - the worker is another process
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)  # polling peers are at their idle pace again
    sent: list[int] = []
    for number in range(jobs):
        await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
        sent.append(time.monotonic_ns())
        await producer.one(number)
    return sent


async def _produce(producer: Producer, how: str, jobs: int) -> dict[str, Any]:
    await producer.open()
    try:
        if how == "spaced":
            return {"sent": await _spaced(producer, jobs)}
        if how == "fill":
            for start in range(0, jobs, AT_ONCE):
                await producer.many(range(start, min(start + AT_ONCE, jobs)))
            return {}
        await producer.many(range(jobs, jobs + WARM))
        return {"seconds": await _timed(producer, how, jobs)}
    finally:
        await producer.close()


def main(producer: Producer) -> None:
    print(json.dumps(asyncio.run(_produce(producer, sys.argv[1], int(sys.argv[2])))))
