"""What holds for the queues of embeddings and of media files: ``app.queue("asr", **pipeline("asr"))``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from unstuck.environ import first_set, number_in, whole_in
from unstuck.errors import ConfigError
from unstuck.policy import LONGEST_LEASE, Rate
from unstuck.task import QueueOptions

Stage = Literal["clip", "asr", "burnin"]
LEASES: Mapping[str, float] = {"clip": 120.0, "asr": 600.0, "burnin": 600.0}
SHORTEST = 30.0  # a shorter lease would not outlast two missed beats


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


def pipeline(stage: Stage, environ: Mapping[str, str] = os.environ) -> QueueOptions:
    """A stage of the media pipeline. Its lease is a number of seconds times a factor, both from the environment."""
    if stage not in LEASES:
        raise ConfigError(f"stage {stage!r} is not known: clip, asr or burnin")
    name = stage.upper()
    leases = (f"JOB_LEASE_SEC_{name}", "JOB_LEASE_SEC")
    factors = (f"JOB_SLA_FACTOR_{name}", "JOB_SLA_FACTOR")
    seconds = number_in(environ, leases, SHORTEST, LONGEST_LEASE, "seconds") or LEASES[stage]
    factor = number_in(environ, factors, 1.0, 1000.0, "times the lease") or 1.0
    if seconds * factor > LONGEST_LEASE:
        raise ConfigError(
            f"{first_set(environ, leases)} × {first_set(environ, factors)} is {seconds:g} × {factor:g} seconds: "
            f"a lease may be at most {LONGEST_LEASE:.0f} seconds"
        )
    return QueueOptions(lease=seconds * factor, heartbeat=12.0, lapse_backoff=(30.0, 120.0, 600.0))
