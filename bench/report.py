"""Samples as a table: medians, spreads, and ratios beside what is required."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

from bench.contestant import OURS
from bench.plan import Plan

METRICS = {
    "bulk": "bulk enqueue, jobs/s",
    "copy": "COPY of the same rows from values, rows/s",
    "copy of text": "COPY of the same rows from ready text, rows/s",
    "drain": "drain with one worker process, jobs/s",
    "one worker": "drain of {twice:,}, one worker, jobs/s",
    "two workers": "drain of {twice:,}, two workers, jobs/s",
    "one worker cpu": "processor a job, one worker and the server, ms",
    "two workers cpu": "processor a job, two workers and the server, ms",
    "beside nothing": "drain of all there is, jobs/s",
    "beside waiting": "drain with {deep:,} waiting, jobs/s",
    "beside delayed": "drain beside {deep:,} delayed of priority 9, jobs/s",
    "beside finished": "drain beside {finished:,} finished, jobs/s",
    "without snapshot": "drain of {long:,}, jobs/s",
    "with snapshot": "drain of {long:,} while a snapshot is held, jobs/s",
    "reaper": "reaper's scan of {scanned:,} finished and running, ms",
    "batches of 1": "lease and settle, 1 at a time, jobs/s",
    "batches of 10": "lease and settle, 10 at a time, jobs/s",
    "batches of 50": "lease and settle, 50 at a time, jobs/s",
    "batches of 200": "lease and settle, 200 at a time, jobs/s",
    "lease": "a lease of 50, ms",
    "lease beside finished": "a lease of 50 beside 200,000 finished, ms",
    "disk": "write of 8 kB and sync, times/s",
    "single": "single enqueue, one after the other, jobs/s",
    "crowd": "single enqueue, 50 at the same time, jobs/s",
    "latency p50": "enqueue to start, idle worker, p50 ms",
    "latency p99": "enqueue to start, idle worker, p99 ms",
    "memory": "peak memory of a draining worker, MB",
}


@dataclass(frozen=True)
class Sample:
    """One measured value; ``noise`` is how many cores others used meanwhile."""

    round: int
    metric: str
    name: str
    value: float
    noise: float


@dataclass(frozen=True)
class Ratio:
    """What is required of one of our values beside another: of the best of contestants, or another metric."""

    metric: str
    others: tuple[str, ...]
    at_least: float = 0.0
    at_most: float = math.inf

    @property
    def said(self) -> str:
        bound = f"at most {self.at_most:g}" if self.at_most < math.inf else f"at least {self.at_least:g}"
        return f"{self.metric}: {bound} × {'the best of ' * (len(self.others) > 1)}{', '.join(self.others)}"


PYTHON = ("pgqueuer", "procrastinate", "oban")
RATIOS = {
    "sqlite": (
        Ratio("bulk", ("litequeue",), 4.0),
        Ratio("drain", ("litequeue",), 3.0),
        Ratio("drain", ("huey",), 5.0),
        Ratio("beside waiting", ("beside nothing",), 0.9),
        Ratio("beside delayed", ("beside nothing",), 0.9),
    ),
    "postgres": (
        Ratio("bulk", PYTHON, 1.5),
        Ratio("bulk", ("copy",), 0.5),
        Ratio("drain", PYTHON, 2.0),
        Ratio("drain", ("graphile-worker",), 1.0),
        Ratio("two workers", ("one worker",), 1.0),
        Ratio("two workers cpu", ("one worker cpu",), at_most=1.15),
        Ratio("beside waiting", ("beside nothing",), 0.9),
        Ratio("beside finished", ("beside nothing",), 0.9),
        Ratio("with snapshot", ("without snapshot",), 0.5),
    ),
    "redis": (
        Ratio("bulk", ("bullmq",), 1.0),
        Ratio("drain", ("bullmq",), 1.2),
        Ratio("drain", ("dramatiq", "taskiq"), 3.0),
    ),
    "neo4j": (
        Ratio("batches of 50", ("plain queries",), 10.0),
        Ratio("batches of 50", ("one bare statement",), 0.7),
        Ratio("lease beside finished", ("lease",), at_most=1.2),
    ),
}
BELOW = {
    "sqlite": {"latency p50": 15.0, "memory": 80.0},
    "postgres": {"latency p50": 5.0, "reaper": 5.0},
    "redis": {"latency p50": 3.0},
    "neo4j": {},
}


def table(samples: list[Sample], plan: Plan, store: str) -> str:
    """Markdown, so that it can be read here and pasted there."""
    lines = ["| what | who | median | min..max |", "|---|---|---|---|"]
    lines += _medians(samples, plan)
    lines += ["", "| required | measured | by round | |", "|---|---|---|---|"]
    lines += _ratios(samples, store)
    lines += _bounds(samples, store)
    return "\n".join(lines)


def _medians(samples: list[Sample], plan: Plan) -> Iterator[str]:
    sizes = asdict(plan) | {"twice": 2 * plan.jobs}
    for metric, title in METRICS.items():
        for name in dict.fromkeys(sample.name for sample in samples if sample.metric == metric):
            values = _values(samples, metric, name)
            spread = f"{_number(min(values))}..{_number(max(values))}"
            yield f"| {title.format(**sizes)} | {name} | {_number(median(values))} | {spread} |"


def _ratios(samples: list[Sample], store: str) -> Iterator[str]:
    rounds = sorted({sample.round for sample in samples})
    for ratio in RATIOS[store]:
        measured = _measured(samples, ratio)
        if measured is None:
            yield f"| {ratio.said} | not measured | | |"
            continue
        by_round = [value for number in rounds if (value := _measured(samples, ratio, number)) is not None]
        yield (
            f"| {ratio.said} | {measured:.2f} × | {min(by_round):.2f}..{max(by_round):.2f} "
            f"| {_said(ratio.at_least <= measured <= ratio.at_most)} |"
        )


def _measured(samples: list[Sample], ratio: Ratio, number: int | None = None) -> float | None:
    ours = _values(samples, ratio.metric, OURS, number)
    others = [_values(samples, *_meant(samples, ratio.metric, other), number) for other in ratio.others]
    best = max((median(values) for values in others if values), default=None)
    return median(ours) / best if ours and best is not None else None


def _meant(samples: list[Sample], metric: str, other: str) -> tuple[str, str]:
    """A metric and whose: a contestant's same one, or another one of the only one who has it."""
    if other not in METRICS:
        return metric, other
    return other, next((sample.name for sample in samples if sample.metric == other), OURS)


def _bounds(samples: list[Sample], store: str) -> Iterator[str]:
    for metric, most in BELOW[store].items():
        said = f"{metric}: below {most:g}"
        if not (values := _values(samples, metric, OURS)):
            yield f"| {said} | not measured | | |"
            continue
        measured = max(values) if metric == "memory" else median(values)
        yield f"| {said} | {measured:.1f} | {min(values):.1f}..{max(values):.1f} | {_said(measured < most)} |"


def _values(samples: list[Sample], metric: str, name: str, number: int | None = None) -> list[float]:
    return [
        sample.value
        for sample in samples
        if (sample.metric, sample.name) == (metric, name) and number in (None, sample.round)
    ]


def _number(value: float) -> str:
    if value < 1:
        return f"{value:.3f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _said(holds: bool) -> str:
    return "holds" if holds else "**missed**"
