"""Alerts: what an operator must hear of. The store keeps each as an event; here it becomes a log line."""

from __future__ import annotations

import logging

from unstuck.model import Outcome

log = logging.getLogger("unstuck.alerts")


def tell_alert(outcome: Outcome) -> None:
    """Log the alert that an applied outcome raised, if it did."""
    if not (alert := outcome.alert):
        return
    queue, job, _ = outcome.lease
    why = outcome.failure
    log.log(
        logging.CRITICAL if alert == "halted" else logging.ERROR,
        "alert %s: job %s of queue %s: %s",
        alert,
        job,
        queue,
        outcome.pause or (f"{why.code}: {why.message}" if why else outcome.why),
        extra={"alert": alert, "jobId": job, "queue": queue, "code": why.code if why else ""},
    )
