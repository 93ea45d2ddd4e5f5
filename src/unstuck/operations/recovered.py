"""Recovered: what one recovery of lost jobs did."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from unstuck.protocol.job import EXPIRED, Status
from unstuck.recovery.reaper import Reaper


class Recovered(Struct, frozen=True):
    """``recovered`` leases were ended: some jobs were requeued, the others failed. ``troubles`` are tables that could not be read.

    ``expired`` jobs were not started in time, and failed, too.
    """

    recovered: int
    requeued: int
    failed: int
    troubles: Sequence[str] = ()
    expired: int = 0


async def recover_once(reaper: Reaper) -> Recovered:
    done = await reaper.recover()
    statuses = [outcome.status for outcome in done if outcome.event != EXPIRED]
    return Recovered(
        len(statuses),
        statuses.count(Status.PENDING),
        statuses.count(Status.FAILED),
        reaper.troubles,
        len(done) - len(statuses),
    )
