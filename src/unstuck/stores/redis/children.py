"""The children that a parent of BullMQ's waits for."""

from __future__ import annotations

from unstuck.protocol.foreign import Children
from unstuck.protocol.job import Ref
from unstuck.stores.redis.client import RedisClient

FEW = 10  # children that are named


async def awaited(client: RedisClient, ref: Ref) -> Children | None:
    of = client.address.of
    waits, many, keys = await client.together(
        [
            ["ZSCORE", of(ref.queue, "waiting-children"), ref.id],
            ["SCARD", of(ref.queue, f"{ref.id}:dependencies")],
            ["SRANDMEMBER", of(ref.queue, f"{ref.id}:dependencies"), FEW],
        ],
        ref.queue,
    )
    if waits is None:
        return None
    named = [client.address.parts(key.decode(errors="replace")) for key in keys]
    return Children(int(many), sorted(Ref(*parts) for parts in named if parts is not None))
