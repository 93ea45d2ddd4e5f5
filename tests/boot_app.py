"""An app with a queue of each profile, for tests that start real workers."""

import asyncio
import os

from unstuck import Unstuck, profiles

app = Unstuck(os.environ["UNSTUCK_STORE"])
app.queue("embeddings", **profiles.embedding())
app.queue("clips", **profiles.pipeline())


@app.task(queue="embeddings")
async def embed(text: str) -> int:
    return len(text)


@app.task(queue="clips")
async def clip(seconds: float) -> None:
    await asyncio.sleep(seconds)
