"""Keeps vectors by model and text, and knows which entities lack them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import reading, rows
from unstuck_memory.graphs.sqlite.sign_bits import sign_bits
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Coverage, Entity, Version
from unstuck_memory.vectors import Chunk, Embedding, Model, Vector

MARKED_AT_ONCE = 2_000  # rows of table entity that are looked through in one transaction
STORED = np.dtype("<f4")


class KnownModel(NamedTuple):
    """A row of table model."""

    row_id: int
    known_at: int
    marked_to: int


def find_model(tx: Transaction, model: Model) -> KnownModel | None:
    """The model, if it is known with this dimension."""
    found = tx.rows("model", name=model.name, dimension=model.dimension)
    return KnownModel(*found[0]) if found else None


def need_model(tx: Transaction, model: Model) -> KnownModel:
    found = find_model(tx, model)
    if found is None:
        raise InvalidInput(
            f"model {model.name!r} with dimension {model.dimension} is not known to the graph: call use_model first"
        )
    return found


def is_known(tx: Transaction, model: Model) -> bool:
    return find_model(tx, model) is not None


def use_model(tx: Transaction, model: Model) -> None:
    if not is_known(tx, model):
        tx.change("model_add", name=model.name, dimension=model.dimension)


def current(tx: Transaction, versions: Sequence[Version]) -> list[Entity | None]:
    found = {entity.uid: entity for entity in reading.by_uid(tx, list({version.uid for version in versions}))}
    entities = [found.get(version.uid) for version in versions]
    return [
        entity if entity and entity.version == version.version else None
        for entity, version in zip(entities, versions, strict=True)
    ]


def known_vectors(tx: Transaction, model: Model, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
    known = find_model(tx, model)
    if known is None:
        return {}
    found = tx.rows("vectors", model=known.row_id, hashes=rows.texts(value.hex() for value in set(hashes)))
    return {value: vector(numbers) for value, numbers in found}


def store(tx: Transaction, embeddings: Sequence[Embedding]) -> list[bool]:
    return [_store(tx, embedding) for embedding in embeddings]


def mark(tx: Transaction, model: Model) -> bool:
    """Look through some of the entities that were there before the model was known; returns whether none is left."""
    known = need_model(tx, model)
    to = min(known.marked_to + MARKED_AT_ONCE, known.known_at)
    if known.marked_to < to:
        tx.change("missing_mark", model=known.row_id, after=known.marked_to, to=to)
        tx.change("model_marked", model=known.row_id, to=to)
    return to == known.known_at


def all_marked(tx: Transaction, model: Model) -> bool:
    known = need_model(tx, model)
    return known.marked_to == known.known_at


def without(
    tx: Transaction, model: Model, limit: int, project: str | None, after: Entity | None
) -> list[Entity]:
    behind = {"since": after.valid_from if after else -1, "uid": after.uid if after else "", "limit": limit}
    known = need_model(tx, model)
    if project is None:
        found = tx.rows("missing", model=known.row_id, **behind)
    else:
        found = tx.rows("missing_in_project", model=known.row_id, project=project, **behind)
    return [rows.entity(row) for row in found]


def coverage(tx: Transaction, project: str, model: Model) -> Coverage:
    known = find_model(tx, model)
    [(entities, embedded)] = tx.rows("coverage", project=project, model=known.row_id if known else None)
    return Coverage(entities=entities, embedded=embedded)


def embedding_of(tx: Transaction, uid: str, model: Model) -> Embedding | None:
    known = find_model(tx, model)
    found = tx.rows("embedding", uid=uid, model=known.row_id) if known else []
    if not known or not found:
        return None
    [(entity, version, fence)] = found
    chunks = tuple(
        Chunk(value, vector(numbers), observation)
        for value, numbers, observation in tx.rows("chunks", entity=entity, model=known.row_id)
    )
    return Embedding(uid, version, fence, model, chunks)


def vector(numbers: bytes) -> Vector:
    return np.frombuffer(numbers, dtype=STORED).astype(np.float32, copy=False)


def _store(tx: Transaction, embedding: Embedding) -> bool:
    model = need_model(tx, embedding.model).row_id
    found = tx.rows("entity_to_embed", uid=embedding.uid, version=embedding.version, model=model)
    if not found:
        return False
    [(entity, since, project, kind, stored_version, stored_fence)] = found
    if stored_version == embedding.version and stored_fence > embedding.fence:
        return False
    tx.change("unused_add", entity=entity, model=model, now=tx.now)
    tx.change("chunks_delete", entity=entity, model=model)
    tx.many(
        "chunk_add",
        (
            {"entity": entity, "model": model, "number": number, "vector": _vector_id(tx, model, chunk),
             "observation": chunk.observation}
            for number, chunk in enumerate(embedding.chunks)
        ),
    )  # fmt: skip
    tx.change(
        "embedding_write", entity=entity, model=model, project=project, type=kind, version=embedding.version,
        fence=embedding.fence, change=tx.value("change_next"), bits=sign_bits([chunk.vector for chunk in embedding.chunks]),
    )  # fmt: skip
    tx.change("missing_embedded", model=model, since=since, uid=embedding.uid)
    return True


def _vector_id(tx: Transaction, model: int, chunk: Chunk) -> int:
    numbers = chunk.vector.astype(STORED, copy=False).tobytes()
    found = tx.rows("vector_find", model=model, hash=chunk.hash, numbers=numbers)
    if not found:
        return int(tx.value("vector_add", model=model, hash=chunk.hash, numbers=numbers))
    [(row_id, same)] = found
    if not same:
        tx.change("vector_replace", id=row_id, numbers=numbers)
    return int(row_id)
