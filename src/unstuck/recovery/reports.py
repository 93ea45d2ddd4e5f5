"""Log lines about outcomes: attempts that failed, and alerts. The store keeps an event of each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from unstuck.protocol.job import Category, Job, Status
from unstuck.protocol.outcome import Outcome
from unstuck.text.logs import bounded

log = logging.getLogger("unstuck.worker")
alerts = logging.getLogger("unstuck.alerts")


def log_alert(outcome: Outcome) -> None:
    """Log the alert that an applied outcome raised, if it did."""
    if not (alert := outcome.alert):
        return
    queue, job, _ = outcome.lease
    why = outcome.failure
    alerts.log(
        logging.CRITICAL if alert == "halted" else logging.ERROR,
        "alert %s: job %s of queue %s: %s",
        alert,
        job,
        queue,
        outcome.halt or outcome.pause or (f"{why.code}: {why.message}" if why else outcome.why),
        extra={"alert": alert, "jobId": job, "queue": queue, "code": why.code if why else ""},
    )


_LEVEL = {
    Category.TRANSIENT: logging.WARNING,
    Category.PERMANENT: logging.ERROR,
    Category.CRITICAL: logging.CRITICAL,
}


def log_failure(job: Job, outcome: Outcome, *, worker: str, facts: Mapping[str, Any]) -> None:
    """The one line about an attempt that did not succeed, with what its handler bound; none if it has no failure.

    The facts stand under a key of their own, so that none of them can pass for what the engine says.
    """
    if (why := outcome.failure) is None:
        return
    bound = bounded(facts)
    ended = outcome.status is Status.FAILED
    then = "failed" if ended else f"will be tried again in {outcome.delay:.1f} s"
    level = _LEVEL[why.category]
    log.log(
        max(level, logging.ERROR) if ended else level,
        "job %s (%s) %s: %s",
        job.id,
        job.task,
        then,
        why.message,
        extra={
            "jobId": job.id,
            "queue": job.queue,
            "task": job.task,
            "operation": bound.get("operation", job.task),
            **({"entityName": bound["entityName"]} if "entityName" in bound else {}),
            "errorType": str(why.category),
            "code": why.code,
            "error": why.message,
            "attempt": job.attempts,
            "maxAttempts": job.max_attempts,
            "stack": why.stack,
            "workerId": worker,
            **({"facts": bound} if bound else {}),
        },
    )
