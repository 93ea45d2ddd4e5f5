"""The app that the tests' worker processes run. Its handlers tell the ledger what they really did."""

import asyncio
import os
import time
from pathlib import Path

from support.ledger import Ledger

from unstuck import Retry, Unstuck, current_job

app = Unstuck(os.environ["UNSTUCK_STORE"])
LEASE, HEARTBEAT = 2.0, 0.3


def _ledger() -> Ledger:
    return Ledger.from_env()


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=Retry(attempts=20, backoff=(0.1,)))
async def step(seconds: float = 0.0, gate: str = "") -> int:
    """Take a while, or until there is a file of the name ``gate``, and tell when it began and ended."""
    job = current_job()
    _ledger().begin(job.id, job.fence)
    await asyncio.sleep(seconds)
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.05)
    _ledger().end(job.id, job.fence)
    return os.getpid()


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=Retry(attempts=20, backoff=(0.1,)))
def blocking_step(seconds: float) -> int:
    job = current_job()
    _ledger().begin(job.id, job.fence)
    time.sleep(seconds)
    _ledger().end(job.id, job.fence)
    return os.getpid()


@app.task(queue="longer", lease=6.0, heartbeat=HEARTBEAT, retry=Retry(attempts=20, backoff=(0.1,)))
async def longer_step(gate: str) -> int:
    return await step(gate=gate)


@app.task(queue="short", lease=LEASE, heartbeat=HEARTBEAT, retry=3)
async def poison() -> None:
    """Kill the worker that runs it, as a segfault or the kernel's memory killer does."""
    job = current_job()
    _ledger().begin(job.id, job.fence)
    os._exit(137)
