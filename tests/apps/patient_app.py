"""An app whose handlers run until they are let go, on leases that are short."""

import asyncio
import os
from pathlib import Path

from support.ledger import Ledger

from unstuck import Retry, Unstuck, current_job

app = Unstuck(os.environ.get("UNSTUCK_STORE", "sqlite:///:memory:"))
LEASE = 5.0  # seconds, so that one who is held up for three of them is not taken for dead


@app.task(queue="patient", lease=LEASE, heartbeat=1.0, retry=Retry(attempts=5, backoff=(0.1,)))
async def outlast(until: str) -> int:
    """Runs until there is a file of this name."""
    job, ledger = current_job(), Ledger.from_env()
    ledger.begin(job.id, job.fence)
    while not Path(until).exists():
        await asyncio.sleep(0.5)
    ledger.end(job.id, job.fence)
    return os.getpid()
