"""An app whose queue is a table of somebody else; its handler runs until the file ``go`` is there."""

import asyncio
import os
from pathlib import Path
from typing import Any

from unstuck import Unstuck, current_job
from unstuck.contrib.pipeline import pipeline

app = Unstuck(os.environ["SHOP"] + "?table=jobs")
app.queue("jobs", **pipeline() | {"heartbeat": 0.5})


@app.task(name="jobs", queue="jobs")
async def clip(row: dict[str, Any]) -> str:
    current_job().stage("burnin", expected=100.0)
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return str(row["source_key"])
