"""An app with a queue of each profile, for tests that start real workers."""

import asyncio
import os

from unstuck import Unstuck
from unstuck.contrib.embeddings import embedding
from unstuck.contrib.pipeline import pipeline

app = Unstuck(os.environ["UNSTUCK_STORE"])
app.queue("embeddings", **embedding())
app.queue("clips", **pipeline())


@app.task(queue="embeddings")
async def embed(text: str) -> int:
    return len(text)


@app.task(queue="clips")
async def clip(seconds: float) -> None:
    await asyncio.sleep(seconds)
