"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from unstuck.errors import StoreError
from unstuck.store import Finding
from unstuck.stores.redis.lines import Lines

OLDEST = (6, 2)


async def checkup(lines: Lines) -> list[Finding]:
    """In a cluster of all its servers; what is the same for several is said once."""
    found: list[Finding] = []
    settings = await _settings(lines)
    for number, info in enumerate(await read_infos(lines)):
        of = None if settings is None else settings[number]
        found += _release(info, cluster=lines.place.cluster) + _eviction(info) + _durability(info, of)
    return list(dict.fromkeys(found))


async def read_infos(lines: Lines) -> list[dict[str, str]]:
    """What the servers say about themselves. Managed ones forbid to ask for settings, but not this."""
    return [
        {
            name: value.strip()
            for name, _, value in (line.partition(":") for line in said.decode().splitlines())
        }
        for said in await lines.ask_servers("INFO")
    ]


async def _settings(lines: Lines) -> list[dict[str, str]] | None:
    """None where a server does not tell."""
    try:
        asked = [await lines.ask_servers("CONFIG", "GET", name) for name in ("save", "appendfsync")]
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
        fix = "add cluster=yes to the store's URL, and prefix={bull} if all queues are to be on one server"
        found.append(Finding("failure", "the server is part of a cluster", fix))
    if info.get("role", "master") != "master":
        found.append(
            Finding("failure", "the server is a replica: nothing can be written", "name the primary")
        )
    return found


def _eviction(info: Mapping[str, str]) -> list[Finding]:
    policy = info.get("maxmemory_policy")
    if policy is None:
        told = "it is not known whether the server removes keys when its memory is full"
        return [Finding("warning", told, "see that its maxmemory-policy is noeviction")]
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
            return [Finding("ok", "what is acknowledged is in the append-only file")]
        told = f"appendfsync is {settings.get('appendfsync')}: a crash of the host may lose what was just acknowledged"
        return [Finding("warning", told, "CONFIG SET appendfsync always, where that must not be")]
    if settings is None:
        return [Finding("warning", "there is no append-only file; snapshots may lose minutes of jobs", fix)]
    if settings.get("save"):
        return [
            Finding("warning", "only snapshots are written: a crash loses all jobs since the last one", fix)
        ]
    return [Finding("failure", "the server writes nothing to its disk: a restart loses all jobs", fix)]
