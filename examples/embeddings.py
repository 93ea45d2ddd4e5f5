"""Embeddings: up to 50 texts a request, at most 5 requests a second by all workers together, a 429 obeyed.

EMBEDDINGS_URL=http://host/embeddings unstuck worker embeddings:app
python embeddings.py < texts.txt
"""

import asyncio
import os
import sys

import httpx

from unstuck import Rate, Unstuck

app = Unstuck("sqlite:///embeddings.db")
app.queue("embeddings", rate=Rate(5, per=1))  # a batch is one request and takes one token

api = httpx.AsyncClient(timeout=30)


@app.lifespan
def connected() -> httpx.AsyncClient:
    return api  # opened before the first job, closed after the last


@app.batch(50, queue="embeddings")
async def embed(texts: list[str]) -> list[list[float]]:
    answer = await api.post(os.environ["EMBEDDINGS_URL"], json={"input": texts})
    answer.raise_for_status()  # 429: all workers wait as long as it says, and no attempt is spent
    return [item["embedding"] for item in answer.json()["data"]]


async def main() -> None:
    async with app:
        jobs = await app.enqueue_many([embed.call(line.strip()) for line in sys.stdin])
        vectors = [await job.result() for job in jobs]
        print(len(vectors), "vectors")


if __name__ == "__main__":
    asyncio.run(main())
