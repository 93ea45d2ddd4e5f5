"""The app that the tests' worker processes run. Its handlers tell the ledger what they really did."""

import asyncio
import os
import time

from support.ledger import Ledger

from unstuck import Retry, Unstuck, current_job

app = Unstuck(os.environ["UNSTUCK_STORE"])
LEASE, HEARTBEAT = 2.0, 0.3


def _ledger() -> Ledger:
    return Ledger.from_env()


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=Retry(attempts=20, backoff=(0.1,)))
async def step(seconds: float) -> int:
    """Take a while, and tell when it began and ended."""
    job = current_job()
    _ledger().begin(job.id, job.fence)
    await asyncio.sleep(seconds)
    _ledger().end(job.id, job.fence)
    return os.getpid()


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=Retry(attempts=20, backoff=(0.1,)))
def blocking_step(seconds: float) -> int:
    job = current_job()
    _ledger().begin(job.id, job.fence)
    time.sleep(seconds)
    _ledger().end(job.id, job.fence)
    return os.getpid()


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=3)
async def poison() -> None:
    """Kill the worker that runs it, as a segfault or the kernel's memory killer does."""
    job = current_job()
    _ledger().begin(job.id, job.fence)
    os._exit(137)
