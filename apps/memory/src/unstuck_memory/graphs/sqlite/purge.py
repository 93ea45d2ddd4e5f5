"""Deletes archived versions for good, and the vectors of texts that nothing has had for as long."""

from __future__ import annotations

from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.threads import Transaction

AT_ONCE = 500  # rows that one transaction deletes


def purge_relations(tx: Transaction, project: str, before: int) -> int:
    return tx.change("purge_relations", project=project, before=before, limit=AT_ONCE)


def purge_entities(tx: Transaction, project: str, before: int) -> int:
    """Delete versions, and the embeddings of entities of which nothing is left."""
    gone = [row[0] for row in tx.rows("purge_entities", project=project, before=before, limit=AT_ONCE)]
    entities = rows.texts(gone)
    tx.change("purge_unused", entities=entities, now=tx.now)
    tx.change("purge_chunks", entities=entities)
    tx.change("purge_embeddings", entities=entities)
    return len(gone)


def purge_vectors(tx: Transaction, before: int) -> int:
    """Vectors belong to no project: a text may be the same in several."""
    vectors = [row[0] for row in tx.rows("purge_unused_since", before=before, limit=AT_ONCE)]
    tx.change("purge_vectors", vectors=rows.texts(vectors))
    return len(vectors)
