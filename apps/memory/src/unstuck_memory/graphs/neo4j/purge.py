"""Deletes archived versions for good, in several small transactions."""

from __future__ import annotations

from functools import partial

from unstuck_memory.graphs.neo4j import entities
from unstuck_memory.graphs.neo4j.client import Client, Transaction
from unstuck_memory.values import Purge

AT_ONCE = 1000


async def purge(client: Client, project: str, before: int) -> Purge:
    """Relations first: they connect the nodes of entities, which are deleted with the last version."""
    relations = await _all(client, "purge_relations", project, before)
    versions = await _all(client, "purge_entities", project, before)
    while await client.write(partial(_vectors, before=before)) == AT_ONCE:
        pass
    return Purge(entities=versions, relations=relations)


async def _all(client: Client, statement: str, project: str, before: int) -> int:
    total, done = 0, AT_ONCE
    while done == AT_ONCE:
        done = await client.write(partial(_some, statement=statement, project=project, before=before))
        total += done
    return total


async def _some(tx: Transaction, *, statement: str, project: str, before: int) -> int:
    [[count, *uids]] = await tx.rows(statement, project=project, before=before, limit=AT_ONCE)
    if uids:
        [gone] = [[uid for (uid,) in await tx.rows("find_gone", uids=sorted(uids[0]))]]
        dropped = await tx.rows("drop_chunks", uids=gone, model=None)
        await entities.hide(tx, {(model, hash_) for model, hash_ in dropped})
        await tx.rows("purge_ids", uids=gone)
    return int(count)


async def _vectors(tx: Transaction, *, before: int) -> int:
    [[count]] = await tx.rows("purge_vectors", before=before, limit=AT_ONCE)
    return int(count)
