"""An app for a queue that workers of BullMQ's serve too: its jobs may lose as many workers as a test kills.

Without a budget of the queue's own, a job that BullMQ enqueued fails with the second worker that dies over it.
"""

import asyncio
import os

from unstuck import Retry, Unstuck

app = Unstuck(os.environ["UNSTUCK_STORE"])


@app.task(queue="mixed", max_crashes=100, retry=Retry(attempts=200, backoff=(0.1,)))
async def step(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()
