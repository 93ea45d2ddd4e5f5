"""What holds for the queues of embeddings and of media files: ``app.queue("asr", **pipeline())``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from unstuck.environ import whole_in
from unstuck.layout import terms
from unstuck.policy import Rate
from unstuck.task import QueueOptions


def embedding(environ: Mapping[str, str] = os.environ) -> QueueOptions:
    """Calls of a provider that counts them. A crash is no failure, and what is recovered is free at once.

    A worker of this queue starts only if EMBED_JOB_RETENTION_DAYS says how long finished jobs are kept.
    """
    tokens = whole_in(environ, ("EMBEDDING_RATE_LIMIT_TOKENS",), 1, 1_000_000) or 20
    interval = whole_in(environ, ("EMBEDDING_RATE_LIMIT_INTERVAL",), 100, 86_400_000) or 60_000
    return QueueOptions(
        lease=300.0,
        heartbeat=120.0,
        max_crashes=10,
        lapse_backoff=(),
        rate=Rate(tokens, interval / 1000),
        retention_from="EMBED_JOB_RETENTION_DAYS",
    )


def pipeline(environ: Mapping[str, str] = os.environ) -> QueueOptions:
    """Media files, or rows of a table of yours. A lease lasts JOB_LEASE_SEC or QUEUE_VISIBILITY_SEC, 300 seconds by
    default, and in a stage that says how long it is expected to take, at least that times the stage's factor.
    """
    said = terms(environ)
    return QueueOptions(
        lease=said.lease, heartbeat=12.0, lapse_backoff=said.backoff, factors=dict(said.factors)
    )
