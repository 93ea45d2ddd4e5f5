"""Keeps vectors by model and text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Client, KnownModel, Moved, Transaction
from unstuck_memory.graphs.neo4j.entities import hide
from unstuck_memory.graphs.neo4j.models import need
from unstuck_memory.vectors import Chunk, Embedding, Model, Vector


async def known_vectors(client: Client, model: KnownModel, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
    asked = sorted({value.hex() for value in hashes})
    found = await client.rows("known_vectors", model=model.number, hashes=asked)
    return {bytes.fromhex(value): _vector(numbers) for value, numbers in found}


async def embedding_of(client: Client, uid: str, model: Model, known: KnownModel) -> Embedding | None:
    found = await client.rows("embedding_of", uid=uid, model=known.number, fence=rows.fence(known.number))
    if not found:
        return None
    [[version, fence, chunks]] = found
    return Embedding(
        uid, version, fence, model, tuple(Chunk(bytes.fromhex(value), _vector(numbers), at) for value, numbers, at in chunks)
    )  # fmt: skip


async def store_embeddings(tx: Transaction, embeddings: Sequence[Embedding]) -> list[bool]:
    """Whose vectors are right has been checked: the database would take any."""
    models = [need(tx.models, embedding.model) for embedding in embeddings]
    numbers = sorted({model.number for model in models})
    uids = sorted({embedding.uid for embedding in embeddings})
    await tx.rows("lock_uids", uids=uids)
    versions: dict[str, int] = {}
    fences: dict[tuple[str, int], int | None] = {}
    names = [rows.fence(number) for number in numbers]
    for uid, version, found in await tx.rows("find_fences", uids=uids, fences=names):
        versions[uid] = version
        fences |= {(uid, number): fence for number, fence in zip(numbers, found, strict=True)}
    answers = []
    accepted: dict[int, dict[str, Embedding]] = {number: {} for number in numbers}
    for embedding, model in zip(embeddings, models, strict=True):
        fence = fences.get((embedding.uid, model.number))
        right = versions.get(embedding.uid) == embedding.version and (
            fence is None or fence <= embedding.fence
        )
        if right:
            fences[embedding.uid, model.number] = embedding.fence
            accepted[model.number][embedding.uid] = embedding
        answers.append(right)
    for number, of_model in accepted.items():
        await _write(tx, number, of_model)
    return answers


async def _write(tx: Transaction, number: int, embeddings: dict[str, Embedding]) -> None:
    dropped = await tx.rows("drop_chunks", uids=sorted(embeddings), model=number)
    vectors: dict[str, Vector] = {}
    chunks: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for uid, embedding in embeddings.items():
        for position, chunk in enumerate(embedding.chunks):
            vectors[chunk.hash.hex()] = chunk.vector
            chunks.append({"uid": uid, "version": embedding.version, "hash": chunk.hash.hex(), "number": position, "observation": chunk.observation})  # fmt: skip
        states.append({"uid": uid, rows.fence(number): embedding.fence, rows.missing(number): None})
    kept = [{"hash": value, "vector": vectors[value].tolist()} for value in sorted(vectors)]
    await tx.rows("keep_vectors", model=number, vectors=kept)
    if chunks:
        [[written]] = await tx.rows("embed", model=number, chunks=chunks)
        if written != len(chunks):
            raise Moved("a vector was purged while it was stored again")
    await tx.rows("note_embeddings", states=states)
    await hide(tx, {(model, value) for model, value in dropped if value not in vectors})


def _vector(numbers: Sequence[float]) -> Vector:
    return np.asarray(numbers, dtype=np.float32)
