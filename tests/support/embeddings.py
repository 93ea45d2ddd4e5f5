"""A queue as a memory's is: long leases, a crash budget, a rate, and days of retention that the environment must say."""

from typing import Any

from unstuck import QueueOptions, Rate

DAYS = "EMBED_JOB_RETENTION_DAYS"


def embedding(**others: Any) -> QueueOptions:
    """Its options, some of them others: ``app.queue("embedding", **embedding())``."""
    options = QueueOptions(
        lease=300.0, heartbeat=120.0, max_crashes=10, rate=Rate(20, per=60.0), retention_from=DAYS
    )
    return options | others  # type: ignore[return-value] # tests know what they ask for
