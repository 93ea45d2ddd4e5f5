"""What nobody will come back for, also in queues that only workers of BullMQ's have used so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unstuck.errors import StoreError
from unstuck.store import Finding
from unstuck.stores.redis.lines import Lines
from unstuck.stores.redis.place import RESERVED

MOST = 10_000  # of one kind in a queue that are looked at
# How a kind is told and what helps, in the order in which they are told; {queue} and {first}, the first one's key.
_KINDS = {
    "stalled": (
        "failure",
        "jobs of queue {queue} are stalled: they run, and nobody holds them",
        "their workers died: start one of BullMQ's that takes {queue}; or one of ours, and unstuck reap --grace SECONDS",
    ),
    "held": (
        "failure",
        "jobs of queue {queue} are held by a lock that never ends",
        "if nobody works on them: DEL {first}:lock, and so on; then they are stalled, and come back",
    ),
    "missing": (
        "failure",
        "entries of queue {queue} have no job: it was removed by hand, evicted or lost",
        "enqueue them again; a worker of ours that takes {queue} removes entries when they are due, or at its look at 1,000 jobs a minute",
    ),
    "unlisted": (
        "failure",
        "jobs of queue {queue} are in no list: nobody will ever take them",
        "a reaper of ours puts those back in line that it knows; else look at HGETALL {first} and add it again",
    ),
    "overdue": (
        "failure",
        "delayed jobs of queue {queue} were due more than a minute ago",
        "no worker moves them on: start one that takes {queue}",
    ),
    "childless": (
        "warning",
        "jobs of queue {queue} wait for children that failed or are gone",
        "retry the children, or add them with an option such as failParentOnFailure",
    ),
    "old": (
        "warning",
        "jobs of queue {queue} are where a BullMQ before 6 keeps them while it is paused",
        "resume the queue by BullMQ: that moves them",
    ),
    "locked for ever": (
        "warning",
        "locks of queue {queue} belong to jobs that do not run, and never end",
        "DEL {first}:lock, and so on",
    ),
    "orphaned": (
        "warning",
        "locks of queue {queue} belong to jobs that do not run",
        "none: they end by themselves",
    ),
}


async def stranded(lines: Lines) -> list[Finding]:
    try:
        known, seen = await lines.queues(), await _seen(lines)
        found = []
        for name in sorted({*known, *seen}):
            ids, locked = (list(some) for some in seen.get(name, ((), ())))
            answer = await lines.run("stranded", [name], ids=ids, locked=locked, most=MOST)
            found += _told(lines.place.of(name, ""), name, answer, ours=name in known)
    except StoreError as error:
        return [Finding("failure", f"its queues cannot be looked at: {error}", "mend that first")]
    return found


async def _seen(lines: Lines) -> dict[str, tuple[set[str], set[str]]]:
    """Queues by their keys: the ids of their jobs, and of those that have a lock."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    async for key in lines.scan(f"{lines.place.prefix}:*"):
        if (parts := lines.place.parts(key)) is None:
            continue
        ids, locked = found.setdefault(parts[0], (set(), set()))
        name = parts[1]
        if name.endswith(":lock") and len(locked) < MOST:
            locked.add(name.removesuffix(":lock"))
        elif ":" not in name and name not in RESERVED and len(ids) < MOST:
            ids.add(name)
    return found


def _told(base: str, queue: str, answer: Sequence[Any], *, ours: bool) -> list[Finding]:
    (waiting, delayed, active, failed), paused, full, version, watched, kinds = answer
    found = []
    if not ours:  # of the others more is told by whoever asks for their counts
        by = "" if version is None else f" ({version.decode(errors='replace')})"
        numbers = f"{waiting} wait, {delayed} later, {active} run, {failed} failed"
        found.append(Finding("ok", f"queue {queue}{by}: {numbers}"))
        if paused:
            found.append(
                Finding("warning", f"queue {queue} is paused", "resume it by BullMQ, or: unstuck resume")
            )
        elif waiting and not watched:
            told = f"{waiting} jobs wait in queue {queue}, and there is no sign of a worker that takes it"
            found.append(Finding("failure", told, "start one"))
    if full:
        told = f"queue {queue} runs as many jobs as it may, {full}: nothing else of it is started"
        found.append(Finding("warning", told, "see that they end; or setGlobalConcurrency by BullMQ"))
    by_kind = {
        kind.decode(): (count, [id_.decode(errors="replace") for id_ in ids]) for kind, count, ids in kinds
    }
    for kind, (level, words, fix) in _KINDS.items():
        if kind in by_kind:
            count, ids = by_kind[kind]
            some = ", ".join(ids) + (", …" if count > len(ids) else "")
            said = {"queue": queue, "first": base + ids[0]}
            found.append(Finding(level, f"{count} {words.format(**said)}: {some}", fix.format(**said)))
    return found
