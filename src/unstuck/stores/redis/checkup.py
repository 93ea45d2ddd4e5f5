"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from unstuck.protocol.errors import StoreError
from unstuck.protocol.operators import Finding
from unstuck.stores.redis.client import RedisClient

OLDEST = (6, 2)


async def checkup(client: RedisClient) -> list[Finding]:
    """Check every server of a cluster; findings that several servers share are reported once."""
    found: list[Finding] = []
    settings = await _settings(client)
    for number, info in enumerate(await read_infos(client)):
        of = None if settings is None else settings[number]
        found += _release(info, cluster=client.address.cluster) + _eviction(info) + _durability(info, of)
    return list(dict.fromkeys(found))


async def read_infos(client: RedisClient) -> list[dict[str, str]]:
    """The INFO of each server. Managed servers forbid CONFIG, but not INFO."""
    return [
        {
            name: value.strip()
            for name, _, value in (line.partition(":") for line in info.decode().splitlines())
        }
        for info in await client.ask_servers("INFO")
    ]


async def _settings(client: RedisClient) -> list[dict[str, str]] | None:
    """None where a server does not allow CONFIG."""
    try:
        asked = [await client.ask_servers("CONFIG", "GET", name) for name in ("save", "appendfsync")]
    except StoreError:
        return None
    return [
        dict(zip(words[::2], words[1::2], strict=True))
        for words in ([word.decode() for answer in of for word in answer] for of in zip(*asked, strict=True))
    ]


def _release(info: Mapping[str, str], *, cluster: bool) -> list[Finding]:
    name = "Valkey" if "valkey_version" in info else "Redis"
    release = info.get("valkey_version") or info.get("redis_version", "0")
    known = tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2])
    found = [Finding("ok", f"{name} {release}")]
    if known < OLDEST:
        found = [Finding("failure", f"{name} {release} is too old", "use Redis 6.2 or newer, or Valkey")]
    if info.get("cluster_enabled") == "1" and not cluster:
        fix = "add cluster=yes to the store's URL, and prefix={bull} to keep all queues on one server"
        found.append(Finding("failure", "the server is part of a cluster", fix))
    if info.get("role", "master") != "master":
        found.append(Finding("failure", "the server is a replica: it accepts no writes", "name the primary"))
    return found


def _eviction(info: Mapping[str, str]) -> list[Finding]:
    policy = info.get("maxmemory_policy")
    if policy is None:
        what = "it is not known whether the server removes keys when its memory is full"
        return [Finding("warning", what, "make sure that its maxmemory-policy is noeviction")]
    if policy == "noeviction":
        return [Finding("ok", "no key is removed when the memory is full (noeviction)")]
    return [
        Finding(
            "failure",
            f"maxmemory-policy is {policy}: the server removes jobs when its memory is full",
            "CONFIG SET maxmemory-policy noeviction, and the same line in redis.conf",
        )
    ]


def _durability(info: Mapping[str, str], settings: Mapping[str, str] | None) -> list[Finding]:
    fix = "CONFIG SET appendonly yes, and the same line in redis.conf"
    if "aof_enabled" not in info:
        return [Finding("warning", "it is not known whether the server writes to its disk", fix)]
    if info["aof_enabled"] == "1":
        if settings is None or settings.get("appendfsync") == "always":
            return [Finding("ok", "acknowledged jobs are in the append-only file")]
        what = f"appendfsync is {settings.get('appendfsync')}: a crash of the host may lose jobs acknowledged just before"
        return [Finding("warning", what, "CONFIG SET appendfsync always, if such a loss is not acceptable")]
    if settings is None:
        return [Finding("warning", "there is no append-only file; snapshots may lose minutes of jobs", fix)]
    if settings.get("save"):
        return [
            Finding("warning", "only snapshots are written: a crash loses all jobs since the last one", fix)
        ]
    return [Finding("failure", "the server writes nothing to its disk: a restart loses all jobs", fix)]
