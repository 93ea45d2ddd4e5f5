"""The app of the demo. Its handlers also note what they did in a file outside of the store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from unstuck import Permanent, Rate, Retry, Transient, Unstuck, current_job

FOLDER = "UNSTUCK_DEMO_FOLDER"
folder = Path(os.environ.get(FOLDER, "."))
LEASE = 3.0  # seconds; short, so that a frozen worker loses its jobs while one watches

app = Unstuck(f"sqlite:///{folder / 'jobs.db'}")
# A job may be beside the poison, then in the worker that is killed, then in the one that is frozen: none is its fault.
DEATHS = 10
for kind in ("quick", "slow", "flaky", "bad"):
    app.queue(kind, lease=LEASE, heartbeat=0.8, max_crashes=DEATHS)
app.queue("limited", lease=LEASE, heartbeat=0.8, max_crashes=DEATHS, rate=Rate(20, per=3))
app.queue("poison", lease=LEASE, heartbeat=0.8)


def note(what: str) -> None:
    """One line, written at once: several processes append to the file."""
    job = current_job()
    line = f"{what} {job.job.queue} {job.id} {job.fence}\n"
    fd = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@app.task(queue="quick")
async def quick(number: int) -> int:
    await asyncio.sleep(0.02)
    note("did")
    return number * number


@app.task(queue="slow")
async def slow(number: int) -> int:
    for step in range(10):
        current_job().progress(step / 10)
        await asyncio.sleep(0.12)
    note("did")
    return number


@app.task(queue="flaky", retry=Retry(attempts=9, backoff=(0.2, 0.4)))
async def flaky(number: int) -> int:
    """Fails the first two times it is tried."""
    if current_job().attempt <= 2:
        raise Transient("the other side did not answer")
    note("did")
    return number


@app.task(queue="limited")
async def limited(number: int) -> int:
    await asyncio.sleep(0.01)
    note("did")
    return number


@app.task(queue="bad")
async def bad(number: int) -> None:
    raise Permanent(f"order {number} has no address")


@app.task(queue="poison")
async def poison() -> None:
    """Kills the process that runs it, as a fault in native code does."""
    note("poison")
    os._exit(139)
