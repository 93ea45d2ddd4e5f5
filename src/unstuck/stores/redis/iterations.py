"""Computes the next slots of BullMQ's job schedulers with cron patterns, which the scripts cannot do."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from unstuck.protocol.job import Ref
from unstuck.stores.redis.client import Queues, RedisClient
from unstuck.stores.redis.cron import next_slot

log = logging.getLogger("unstuck.redis")

PREFIX = "repeat:"  # of the ids of all jobs that schedulers make

_decode = msgspec.json.Decoder().decode


def slots(unknown: Iterable[Sequence[Any]]) -> dict[str, int]:
    """The next slots after jobs, by the jobs' ids, where a script could not compute them; 0 where there is none."""
    return {id_.decode(): _slot(id_.decode(), opts, int(now)) for _, id_, opts, now in unknown}


async def ensure(client: RedisClient, refs: Iterable[Ref]) -> None:
    """Make sure that the schedulers of these jobs continue: the jobs may end without being leased once more."""
    queues = Queues()
    some = [[queues[ref.queue], ref.id] for ref in refs if ref.id.startswith(PREFIX)]
    if some and (unknown := await client.run("iterate", queues, refs=some)):
        await client.run("iterate", queues, refs=some, slots=slots(unknown))


def _slot(id_: str, text: bytes, now: int) -> int:
    """As BullMQ finds it: after now, the job's own slot and the start, and not after the end."""
    try:
        opts = _decode(text)
        plan = opts["repeat"]
        first = max(
            now, *(int(of.get(name) or 0) for of, name in ((opts, "prevMillis"), (plan, "startDate")))
        )
        slot = next_slot(str(plan["pattern"]), plan.get("tz"), first)
        return slot if slot is not None and slot <= int(plan.get("endDate") or slot) else 0
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        log.error("the scheduler of job %s ends here, its next slot is unknown: %s", id_, error)  # noqa: TRY400
        return 0
