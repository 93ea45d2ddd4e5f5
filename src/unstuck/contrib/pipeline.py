"""The queues of media files (clip, asr, burn-in): ``app.queue("asr", **pipeline())``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from unstuck import QueueOptions, Retry, Terms, env_float

RECOVERY_VARIABLE = "REAPER_INTERVAL_SEC"


def pipeline(environ: Mapping[str, str] = os.environ) -> QueueOptions:
    """The options of a queue of media files, or of the rows of a table of yours.

    A lease lasts ``JOB_LEASE_SEC`` or ``QUEUE_VISIBILITY_SEC``, 300 seconds by default. In a stage that says how
    long it is expected to take, the lease lasts at least that long times the stage's ``…_SLA_FACTOR``.
    """
    terms = Terms.from_environ(environ)
    return QueueOptions(
        lease=terms.lease,
        heartbeat=12.0,
        lapse_backoff=terms.backoff,
        factors=dict(terms.factors),
        recovery=recovery_interval(environ),
    )


def pipeline_retry(environ: Mapping[str, str] = os.environ) -> Retry:
    """The retries of such a queue's tasks: ``@app.task(queue="asr", retry=pipeline_retry())``.

    ``JOB_MAX_ATTEMPTS`` or ``QUEUE_MAX_ATTEMPTS`` attempts, 3 by default. A job that failed waits as long as one
    that lost its worker.
    """
    terms = Terms.from_environ(environ)
    return Retry(terms.max_attempts, backoff=terms.backoff)


def recovery_interval(environ: Mapping[str, str]) -> float | None:
    """The seconds between recoveries, if the variable is set."""
    return env_float(environ, RECOVERY_VARIABLE, least=0.0, most=86400.0)
