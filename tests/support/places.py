"""Places for a reaper that say what they were told to, and note what they were asked."""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from unstuck import Status, StoreUnavailable
from unstuck.protocol.availability import Clock
from unstuck.protocol.fleet import Fleet
from unstuck.protocol.foreign import Judge, Reaped
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Reclaimed, Recovery
from unstuck.protocol.outcome import Outcome, Settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Reaped([], 0, None)


def held(id_: str = "1", *, attempts: int = 3) -> Job:
    """A job that fails if its worker is gone, unless it has attempts left of three."""
    return Job(
        queue="q",
        id=id_,
        task="t",
        status=Status.PROCESSING,
        created_at=NOW,
        run_at=NOW,
        attempts=attempts,
        fence=1,
        owner="w",
    )


class Tables:
    """Tables of others, with their answers in order."""

    def __init__(self, *answers: Reaped) -> None:
        self.answers = list(answers)
        self.asked: list[Recovery] = []
        self.jump = 0.0  # seconds that its clock has been set ahead
        self.uptime = math.inf
        self.away = False
        self.told = NOW  # by its clock, the last time it was asked

    async def clock(self) -> Clock:
        if self.away:
            raise StoreUnavailable("it is away")
        self.told = NOW + timedelta(seconds=time.monotonic() + self.jump)
        return Clock(self.told, self.uptime)

    async def fleet(self) -> Fleet:
        if self.away:
            raise StoreUnavailable("it is away")
        return Fleet([], {})

    async def reap(self, judge: Judge, recovery: Recovery) -> Reaped:
        self.judge = judge
        self.asked.append(recovery)
        return self.answers.pop(0) if self.answers else NOTHING

    async def _not_asked(self, *args: Any) -> Any:
        raise AssertionError(f"no reaper asks for this: {args}")

    __aenter__ = __aexit__ = migrate = count = checkup = stuck = _not_asked


class Both(Tables):
    """A store of jobs beside such tables."""

    def __init__(self, taken: Reclaimed, settled: list[Settled], *answers: Reaped) -> None:
        super().__init__(*answers)
        self.taken, self.settled = taken, settled
        self.reclaims: list[Recovery] = []

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        self.reclaims.append(recovery)
        taken = self.taken
        self.taken = Reclaimed([], 0, taken.next_end)  # what was taken over is not found again
        return taken

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return self.settled[: len(outcomes)]

    enqueue = lease = heartbeat = wait = Tables._not_asked
