"""An app with a queue like that of embeddings and one of media files, for tests that start real workers."""

import asyncio
import os

from support.embeddings import embedding

from unstuck import Unstuck, env_int
from unstuck.contrib.pipeline import pipeline

app = Unstuck(os.environ["UNSTUCK_STORE"])
interval = env_int(os.environ, "EMBED_JOB_RECOVERY_INTERVAL", least=0, most=60_000)
app.queue("embeddings", **embedding(recovery=None if interval is None else interval / 1000))
app.queue("clips", **pipeline())


@app.task(queue="embeddings")
async def embed(text: str) -> int:
    return len(text)


@app.task(queue="clips")
async def clip(seconds: float) -> None:
    await asyncio.sleep(seconds)
