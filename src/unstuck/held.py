"""Held: a lease that this worker has, and what it knows of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from unstuck.context import Context
from unstuck.model import Beat, Job, Verdict
from unstuck.policy import Policy


@dataclass(slots=True, eq=False)
class Held:
    """Its job, how long it may be trusted, and the task that runs it, if any."""

    job: Job
    policy: Policy
    sent: float
    trusted_until: float = field(init=False)
    taken: float = field(init=False)
    context: Context = field(init=False)
    running: asyncio.Task[None] | None = None
    on_loop: bool = False  # its handler runs on the event loop and could block it
    verdict: Verdict = Verdict.HELD
    begun: bool = False  # a task that has not begun must not be cancelled: it would end without a trace
    ended: bool = False  # its outcome is on the way: still beaten for, but no longer lost or won here

    def __post_init__(self) -> None:
        self.context = Context(self.job, self.policy.lease, self.policy.stages)
        self.taken = time.monotonic()
        self.trust(self.sent, self.policy.lease)

    def beat(self) -> Beat:
        context = self.context
        return Beat(self.job.lease, context.lease, context.said_progress, context.said_stage)

    @property
    def waited(self) -> float:
        """For how many seconds it has been leased."""
        return time.monotonic() - self.taken

    def trust(self, sent: float, seconds: float) -> None:
        # The store counts from when it got our call, so counting from when we sent it errs on the safe side.
        self.trusted_until = sent + seconds - max(0.5, seconds / 10)
