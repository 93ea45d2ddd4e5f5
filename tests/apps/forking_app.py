"""An app whose handlers fork and forget that the child must end."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.ledger import Ledger

from unstuck import Unstuck, current_job

app = Unstuck(os.environ["UNSTUCK_STORE"])


def note(kind: str) -> None:
    job = current_job()
    Ledger.from_env().note(kind, job.id, job.fence, pids=[os.getpid()])


@app.lifespan
@asynccontextmanager
async def connected() -> AsyncIterator[None]:
    """Left once in each process that entered it: by a fork, others would lose what it holds."""
    entered = os.getpid()
    yield
    if os.getpid() != entered:
        Ledger.from_env().note("lifespan left in a fork", "", 0, pids=[os.getpid()])


def fork(way: str) -> int:
    """The pid of the child, in the parent."""
    if (pid := os.fork()) == 0:
        if way == "raises":
            raise ValueError("in the child")
        if way == "exits":
            sys.exit(0)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def on_loop(way: str) -> int:
    pid = fork(way)
    if way == "awaits":
        await asyncio.sleep(0)
    if pid == 0:
        return 0
    return await asyncio.to_thread(ended, pid)


@app.task(retry=1)
async def forks_on_loop(way: str) -> int:
    return await on_loop(way)


@app.task(retry=1, timeout=300)
async def forks_in_a_task(way: str) -> int:
    return await asyncio.create_task(on_loop(way))


@app.task(retry=1)
def forks_in_thread(way: str) -> int:
    pid = fork(way)
    return pid and ended(pid)


@app.task(retry=1, isolate=True)
async def forks_apart(way: str) -> int:
    return await on_loop(way)


@app.task(retry=1, isolate=True)
def forks_apart_in_a_function(way: str) -> int:
    pid = fork(way)
    return pid and ended(pid)


@app.task(retry=1)
async def neighbour() -> int:
    """Runs on while others fork; each of its steps is one of this process alone."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        note("step")
        await asyncio.sleep(0)
        await asyncio.sleep(0.002)
    return os.getpid()
