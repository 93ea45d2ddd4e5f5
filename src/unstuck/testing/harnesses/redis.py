"""The harness of the Redis store."""

from __future__ import annotations

import secrets
from importlib.resources import files
from typing import Any, Self

from unstuck.protocol.job import Ref
from unstuck.testing.harnesses.harness import Clients, with_option


class RedisHarness(Clients):
    """``async with RedisHarness("redis://…")``: a new prefix on that server, whose keys are removed at the end.

    In a ``cluster`` all queues are in one slot, or ``spread`` over many.
    """

    def __init__(self, url: str, options: str = "", *, cluster: bool = False, spread: bool = False) -> None:
        self.prefix = f"harness-{secrets.token_hex(6)}"
        if cluster:
            self.prefix = self.prefix if spread else f"{{{self.prefix}}}"
            options += "&cluster=yes"
        self._spread = spread
        self._cluster = cluster
        self._server = url
        super().__init__(with_option(url, f"prefix={self.prefix}{options}"))

    async def __aenter__(self) -> Self:
        from redis.asyncio import Redis, RedisCluster

        self.client: Any = (RedisCluster if self._cluster else Redis).from_url(self._server)
        await self.client.initialize()  # or the first use would take its time
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        keys = [key async for key in self.client.scan_iter(f"{self.prefix}:*", count=5000)]
        slots: dict[int, list[bytes]] = {}
        for key in keys:
            slots.setdefault(self.client.keyslot(key) if self._cluster else 0, []).append(key)
        for some in slots.values():
            for first in range(0, len(some), 1000):
                await self.client.unlink(*some[first : first + 1000])
        await self.client.aclose()

    async def age(self, seconds: float) -> None:
        self.aged += seconds
        script = files("unstuck.testing.harnesses").joinpath("age.lua").read_text(encoding="utf-8")
        own = f"{self.prefix}:{{unstuck}}." if self._spread else f"{self.prefix}:unstuck."
        queues = await self.client.smembers(f"{own}queues")
        bases = [self.base(queue.decode()) for queue in queues]
        for some, home in [([base], "") for base in bases] + [([], own)] if self._spread else [(bases, own)]:
            await self.client.eval(script, 1, some[0] if some else own, round(seconds * 1000), home, *some)

    async def forget_lease(self, ref: Ref) -> None:
        base = self.base(ref.queue)
        await self.client.hdel(f"{base}{ref.id}", "heartbeat_at")
        await self.client.zrem(f"{base}unstuck:leases", ref.id)
        await self.client.delete(f"{base}{ref.id}:lock")

    def base(self, queue: str) -> str:
        """What all keys of a queue begin with."""
        return f"{self.prefix}:{{{queue}}}:" if self._spread else f"{self.prefix}:{queue}:"
