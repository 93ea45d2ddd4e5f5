"""HeldLease: a lease that this worker has, and what it knows of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

from unstuck.app.context import Context
from unstuck.config.policy import Policy
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Beat, Verdict

HELD = Verdict.HELD  # to look a member of an enum up takes a while, and every job needs this one often

_claiming = threading.Lock()  # the loop and the thread of the heartbeats claim jobs


class HeldLease:
    """Its job, how long it may be trusted, and the task that runs it, if any."""

    __slots__ = (
        "_claimed", "begun", "context", "ended", "job", "lease", "on_loop", "policy", "running", "taken", "trusted_until",
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
        self._claimed = False
        self.begun = False  # a task that has not begun must not be cancelled: it would end without a trace
        self.ended = False  # its outcome is on the way: still renewed, but no longer lost or won here
        self.taken = context.reported_at
        self.trust(sent, policy.lease)

    def claim(self) -> bool:
        """Claim it for its handler; false if it was given back meanwhile."""
        with _claiming:
            self._claimed = not self.ended
            return self._claimed

    def withdraw(self) -> bool:
        """Claim it to be given back before its handler is called. May be called from any thread."""
        with _claiming:
            if self._claimed or self.ended or self.verdict is not HELD:
                return False
            self.ended = True
            return True

    def end(self) -> bool:
        """Claim the right to decide how it ends; false if that was claimed before."""
        with _claiming:
            ended, self.ended = self.ended, True
            return not ended

    def beat(self) -> Beat:
        context = self.context
        return Beat(self.lease, context.seconds, context.reported_progress, context.reported_stage)

    @property
    def abandoned(self) -> bool:
        """Its task is over and left no outcome: nobody works on it, so its lease must run out."""
        return self.running is not None and self.running.done() and not self.ended

    @property
    def waited(self) -> float:
        """For how many seconds it has been leased."""
        return time.monotonic() - self.taken

    def trust(self, sent: float, seconds: float) -> None:
        # The store counts from when it got our call, so counting from when we sent it errs on the safe side.
        self.trusted_until = sent + seconds - max(0.5, seconds / 10)


def task_names(held: Iterable[HeldLease]) -> str:
    """The tasks of these jobs, each once, for a line of the log."""
    return ", ".join(sorted({one.job.task for one in held})) or "no job"
