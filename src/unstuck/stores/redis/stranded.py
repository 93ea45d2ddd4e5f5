"""Finds jobs and locks that no program will take up again, also in queues that only BullMQ's workers have used so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unstuck.protocol.errors import StoreError
from unstuck.protocol.operators import Finding
from unstuck.stores.redis.address import RESERVED
from unstuck.stores.redis.client import RedisClient

MOST = 10_000  # entries of one kind in a queue that are checked
# For each kind its level, description and fix, in the order of the report. {first} is the key of the first entry.
_KINDS = {
    "stalled": (
        "failure",
        "jobs of queue {queue} are stalled: they are active, but no worker holds them",
        "their workers died: start a worker of BullMQ's that takes {queue}; or one of ours, and run unstuck reap --grace SECONDS",
    ),
    "held": (
        "failure",
        "jobs of queue {queue} are held by a lock that never ends",
        "if no worker runs them: DEL {first}:lock, and so on; then they count as stalled and are recovered",
    ),
    "missing": (
        "failure",
        "entries of queue {queue} have no job: it was removed by hand, evicted or lost",
        "enqueue them again; a worker of ours that takes {queue} removes entries when they are due, or by its check of 1,000 jobs a minute",
    ),
    "unlisted": (
        "failure",
        "jobs of queue {queue} are in no list: no worker will ever take them",
        "a reaper of ours puts jobs that it knows back in line; for others look at HGETALL {first} and add the job again",
    ),
    "overdue": (
        "failure",
        "delayed jobs of queue {queue} were due more than a minute ago",
        "no worker promotes them: start one that takes {queue}",
    ),
    "childless": (
        "warning",
        "jobs of queue {queue} wait for children that failed or are gone",
        "retry the children, or add them with an option such as failParentOnFailure",
    ),
    "old": (
        "warning",
        "jobs of queue {queue} are in the list in which a BullMQ before 6 keeps the jobs of a paused queue",
        "resume the queue by BullMQ, which moves them",
    ),
    "locked for ever": (
        "warning",
        "locks of queue {queue} belong to jobs that are not active, and never expire",
        "DEL {first}:lock, and so on",
    ),
    "orphaned": (
        "warning",
        "locks of queue {queue} belong to jobs that are not active",
        "nothing to do: they expire by themselves",
    ),
}


async def stranded(client: RedisClient) -> list[Finding]:
    try:
        known, seen = await client.queues(), await _seen(client)
        found = []
        for name in sorted({*known, *seen}):
            ids, locked = (list(some) for some in seen.get(name, ((), ())))
            answer = await client.run("stranded", [name], ids=ids, locked=locked, most=MOST)
            found += _findings(client.address.of(name, ""), name, answer, ours=name in known)
    except StoreError as error:
        return [Finding("failure", f"its queues cannot be checked: {error}", "fix that first")]
    return found


async def _seen(client: RedisClient) -> dict[str, tuple[set[str], set[str]]]:
    """The queues that have keys: the ids of their jobs, and of the jobs that have a lock."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    async for key in client.scan(f"{client.address.prefix}:*"):
        if (parts := client.address.parts(key)) is None:
            continue
        ids, locked = found.setdefault(parts[0], (set(), set()))
        name = parts[1]
        if name.endswith(":lock") and len(locked) < MOST:
            locked.add(name.removesuffix(":lock"))
        elif ":" not in name and name not in RESERVED and len(ids) < MOST:
            ids.add(name)
    return found


def _findings(base: str, queue: str, answer: Sequence[Any], *, ours: bool) -> list[Finding]:
    (waiting, delayed, active, failed), paused, full, version, watched, kinds = answer
    found = []
    if not ours:  # the counts report our own queues in more detail
        by = "" if version is None else f" ({version.decode(errors='replace')})"
        numbers = f"{waiting} wait, {delayed} later, {active} run, {failed} failed"
        found.append(Finding("ok", f"queue {queue}{by}: {numbers}"))
        if paused:
            found.append(
                Finding("warning", f"queue {queue} is paused", "resume it by BullMQ or run: unstuck resume")
            )
        elif waiting and not watched:
            what = f"{waiting} jobs wait in queue {queue}, and there is no sign of a worker that takes it"
            found.append(Finding("failure", what, "start one"))
    if full:
        what = f"queue {queue} runs {full} jobs, which is its limit: no more jobs of it are started"
        found.append(
            Finding("warning", what, "make sure that they end, or raise setGlobalConcurrency of BullMQ")
        )
    by_kind = {
        kind.decode(): (count, [id_.decode(errors="replace") for id_ in ids]) for kind, count, ids in kinds
    }
    for kind, (level, words, fix) in _KINDS.items():
        if kind in by_kind:
            count, ids = by_kind[kind]
            some = ", ".join(ids) + (", …" if count > len(ids) else "")
            names = {"queue": queue, "first": base + ids[0]}
            found.append(Finding(level, f"{count} {words.format(**names)}: {some}", fix.format(**names)))
    return found
