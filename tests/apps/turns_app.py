"""Three queues of jobs that take no time: which of them a worker starts is all that they show."""

import os

from unstuck import Unstuck

app = Unstuck(os.environ["UNSTUCK_STORE"])


@app.task(queue="urgent")
async def urgent() -> None: ...


@app.task(queue="plain")
async def plain() -> None: ...


@app.task(queue="bulk")
async def bulk() -> None: ...
