"""The app of the worker processes that share a rate."""

import os

from support.ledger import Ledger

from unstuck import Rate, Unstuck, current_job

COUNT, PER = 20, 2.0
app = Unstuck(os.environ["UNSTUCK_STORE"])


@app.task(queue="rated", rate=Rate(COUNT, per=PER))
async def call() -> None:
    job = current_job()
    Ledger.from_env().begin(job.id, job.fence)
