"""Entities for tests of search, and a provider that does as they wish."""

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.texts import texts_of
from unstuck_memory.graph import Graph
from unstuck_memory.search import SearchAnswer
from unstuck_memory.values import Entity
from unstuck_memory.vectors import Chunk, Embedding, Model

from support_memory.conformance.given import MODEL, chunk, vector


class Placed:
    """Texts are where the test puts them: at a cosine with every question. Other texts cannot be embedded."""

    kind, hosted, name = "placed", True, MODEL.name

    def __init__(self) -> None:
        self.cosines: dict[str, float] = {}
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.stalled: asyncio.Event | None = None
        """While there is one, calls wait for it."""

    async def model(self) -> Model:
        return MODEL

    def pieces(self, lead: str, text: str) -> list[str]:
        return [lead + text]

    def cut(self, text: str) -> str:
        return text

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += texts
        if self.stalled is not None:
            await self.stalled.wait()
        if self.error is not None:
            raise self.error
        return np.stack([vector(self.cosines.get(text, 1.0)) for text in texts])

    async def aclose(self) -> None: ...


async def place(graph: Graph, entity: Entity, whole: float, *observations: float) -> None:
    """Give an entity vectors at these cosines with every question of :class:`Placed`."""
    await place_all(graph, [entity], whole, *observations)


async def place_all(graph: Graph, entities: Sequence[Entity], whole: float, *observations: float) -> None:
    """Give each of them such vectors."""
    await graph.use_model(MODEL)
    chunks = [chunk(vector(whole), f"{whole}")]
    chunks += [chunk(vector(cosine), f"{cosine}", at) for at, cosine in enumerate(observations)]
    embeddings = [Embedding(one.uid, one.version, 1, MODEL, tuple(chunks)) for one in entities]
    assert all(await graph.store_embeddings(embeddings))


async def embed_all(graph: Graph, provider: Provider, entities: Sequence[Entity]) -> None:
    """Embed entities as a job would."""
    model = await provider.model()
    await graph.use_model(model)
    for entity in entities:
        texts = texts_of(entity, provider)
        rows = await provider.embed([text.text for text in texts])
        chunks = tuple(Chunk(text.hash, row, text.observation) for text, row in zip(texts, rows, strict=True))
        await graph.store_embeddings([Embedding(entity.uid, entity.version, 1, model, chunks)])


def found(answer: SearchAnswer) -> list[str]:
    """The names of the hits; their ranks are one after the other."""
    ranks = [hit.rank for hit in answer.hits]
    assert ranks == list(range(ranks[0], ranks[0] + len(ranks))) if ranks else True, ranks
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    return [hit.entity.name for hit in answer.hits]
