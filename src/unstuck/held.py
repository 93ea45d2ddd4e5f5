"""Held: a lease that this worker has, and what it knows of it."""

from __future__ import annotations

import asyncio
import time

from unstuck.context import Context
from unstuck.model import Beat, Job, Verdict
from unstuck.policy import Policy

HELD = Verdict.HELD  # to look a member of an enum up takes a while, and every job needs this one often


class Held:
    """Its job, how long it may be trusted, and the task that runs it, if any."""

    __slots__ = (
        "begun", "context", "ended", "job", "lease", "on_loop", "policy", "running", "taken", "trusted_until",
        "verdict",
    )  # fmt: skip

    def __init__(self, job: Job, policy: Policy, sent: float) -> None:
        self.job = job
        self.policy = policy
        self.context = context = Context(job, policy.lease, policy.stages, policy.factors)
        self.lease = context.lease
        self.running: asyncio.Task[None] | None = None
        self.verdict = HELD
        self.on_loop = False  # its handler runs on the event loop and could block it
        self.begun = False  # a task that has not begun must not be cancelled: it would end without a trace
        self.ended = False  # its outcome is on the way: still beaten for, but no longer lost or won here
        self.taken = context.said_at
        self.trust(sent, policy.lease)

    def beat(self) -> Beat:
        context = self.context
        return Beat(self.lease, context.seconds, context.said_progress, context.said_stage)

    @property
    def waited(self) -> float:
        """For how many seconds it has been leased."""
        return time.monotonic() - self.taken

    def trust(self, sent: float, seconds: float) -> None:
        # The store counts from when it got our call, so counting from when we sent it errs on the safe side.
        self.trusted_until = sent + seconds - max(0.5, seconds / 10)
