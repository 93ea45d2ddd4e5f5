"""Samples as a table: medians, spreads, and ratios beside what is required."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

OURS = "unstuck"
METRICS = {
    "bulk": "bulk enqueue, jobs/s",
    "drain": "drain with one worker process, jobs/s",
    "beside nothing": "drain of all there is, jobs/s",
    "beside waiting": "drain with {deep:,} waiting, jobs/s",
    "beside delayed": "drain beside {deep:,} delayed of priority 9, jobs/s",
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
    """What is required of one of our rates beside another rate."""

    metric: str
    other: str  # a contestant, or another metric of ours
    at_least: float


RATIOS = (
    Ratio("bulk", "litequeue", 4.0),
    Ratio("drain", "litequeue", 3.0),
    Ratio("drain", "huey", 5.0),
    Ratio("beside waiting", "beside nothing", 0.9),
    Ratio("beside delayed", "beside nothing", 0.9),
)
AT_MOST = {"latency p50": 15.0, "memory": 80.0}


def table(samples: list[Sample], deep: int) -> str:
    """Markdown, so that it can be read here and pasted there."""
    lines = ["| what | who | median | min..max |", "|---|---|---|---|"]
    lines += _medians(samples, deep)
    lines += ["", "| required | measured | by round | |", "|---|---|---|---|"]
    lines += _verdicts(samples)
    return "\n".join(lines)


def _medians(samples: list[Sample], deep: int) -> Iterator[str]:
    for metric, title in METRICS.items():
        for name in dict.fromkeys(sample.name for sample in samples if sample.metric == metric):
            values = _values(samples, metric, name)
            spread = f"{_number(min(values))}..{_number(max(values))}"
            yield f"| {title.format(deep=deep)} | {name} | {_number(median(values))} | {spread} |"


def _verdicts(samples: list[Sample]) -> Iterator[str]:
    for ratio in RATIOS:
        other = (ratio.other, OURS) if ratio.other in METRICS else (ratio.metric, ratio.other)
        measured = median(_values(samples, ratio.metric, OURS)) / median(_values(samples, *other))
        rounds = [
            median(_values(samples, ratio.metric, OURS, number)) / median(_values(samples, *other, number))
            for number in sorted({sample.round for sample in samples})
        ]
        yield (
            f"| {ratio.metric}: at least {ratio.at_least:g} × {ratio.other} | {measured:.2f} × "
            f"| {min(rounds):.2f}..{max(rounds):.2f} | {_said(measured >= ratio.at_least)} |"
        )
    for metric, most in AT_MOST.items():
        values = _values(samples, metric, OURS)
        measured = max(values) if metric == "memory" else median(values)
        yield (
            f"| {METRICS[metric]}: below {most:g} | {measured:.1f} "
            f"| {min(values):.1f}..{max(values):.1f} | {_said(measured < most)} |"
        )


def _values(samples: list[Sample], metric: str, name: str, number: int | None = None) -> list[float]:
    return [
        sample.value
        for sample in samples
        if (sample.metric, sample.name) == (metric, name) and number in (None, sample.round)
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _said(holds: bool) -> str:
    return "holds" if holds else "**missed**"
