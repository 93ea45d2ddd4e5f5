"""Recovered: what one recovery of lost jobs did."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from unstuck.protocol.job import Status
from unstuck.recovery.reaper import Reaper


class Recovered(Struct, frozen=True):
    """``recovered`` leases were ended: some jobs were requeued, the others failed. ``troubles`` are tables that could not be read."""

    recovered: int
    requeued: int
    failed: int
    troubles: Sequence[str] = ()


async def recover_once(reaper: Reaper) -> Recovered:
    statuses = [outcome.status for outcome in await reaper.recover()]
    return Recovered(
        len(statuses), statuses.count(Status.PENDING), statuses.count(Status.FAILED), reaper.troubles
    )
