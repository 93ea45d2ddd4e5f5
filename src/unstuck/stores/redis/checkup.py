"""What can be wrong with the server, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from unstuck.errors import StoreError
from unstuck.store import Finding
from unstuck.stores.redis.lines import Lines

OLDEST = (6, 2)


async def checkup(lines: Lines) -> list[Finding]:
    info = await read_info(lines)
    settings = await _settings(lines)
    return [*_release(info), *_eviction(info), *_durability(info, settings)]


async def read_info(lines: Lines) -> dict[str, str]:
    """What the server says about itself. Managed servers forbid to ask for settings, but not this."""
    said = (await lines.ask("INFO")).decode() if lines else ""
    pairs = (line.split(":", 1) for line in said.splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


async def _settings(lines: Lines) -> dict[str, str] | None:
    """None where the server does not tell."""
    found: dict[str, str] = {}
    try:
        for name in ("save", "appendfsync"):
            words = [word.decode() for word in await lines.ask("CONFIG", "GET", name)]
            found |= dict(zip(words[::2], words[1::2], strict=True))
    except StoreError:
        return None
    return found


def _release(info: Mapping[str, str]) -> list[Finding]:
    name = "Valkey" if "valkey_version" in info else "Redis"
    release = info.get("valkey_version") or info.get("redis_version", "0")
    known = tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2])
    found = [Finding("ok", f"{name} {release}")]
    if known < OLDEST:
        found = [Finding("failure", f"{name} {release} is too old", "use Redis 6.2 or newer, or Valkey")]
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
