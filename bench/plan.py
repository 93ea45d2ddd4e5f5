"""How much a run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    rounds: int
    concurrency: int
    patience: float
    tries: int = 4
    jobs: int = 20_000
    deep: int = 500_000
    finished: int = 5_000_000
    long: int = 200_000
    scanned: int = 1_000_000
    singles: int = 3_000
    latencies: int = 200
    trial: int = 3_000


SMALL = {
    "jobs": 2_000,
    "deep": 20_000,
    "finished": 50_000,
    "long": 5_000,
    "scanned": 20_000,
    "singles": 300,
    "latencies": 40,
    "trial": 300,
}
