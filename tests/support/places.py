"""Places for a reaper that say what they were told to, and note what they were asked."""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from unstuck import Status, StoreUnavailable
from unstuck.abilities import Judge, Reaped
from unstuck.model import Job, Outcome, Settled, Worker
from unstuck.store import Clock, Reclaimed

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
        self.asked: list[dict[str, Any]] = []
        self.jump = 0.0  # seconds that its clock has been set ahead
        self.uptime = math.inf
        self.away = False

    async def clock(self) -> Clock:
        if self.away:
            raise StoreUnavailable("it is away")
        return Clock(NOW + timedelta(seconds=time.monotonic() + self.jump), self.uptime)

    async def workers(self) -> list[Worker]:
        return []

    async def reap(self, judge: Judge, limit: int, **facts: Any) -> Reaped:
        self.judge = judge
        self.asked.append({"limit": limit} | facts)
        return self.answers.pop(0) if self.answers else NOTHING


class Both(Tables):
    """A store of jobs beside such tables."""

    def __init__(self, taken: Reclaimed, settled: list[Settled], *answers: Reaped) -> None:
        super().__init__(*answers)
        self.taken, self.settled = taken, settled
        self.reclaims: list[tuple[Any, ...]] = []

    async def reclaim(self, *args: Any, **facts: Any) -> Reclaimed:
        self.reclaims.append((*args, facts))
        return self.taken

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return self.settled[: len(outcomes)]
