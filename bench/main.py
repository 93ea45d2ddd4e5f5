"""The run: rounds in which contestants take turns, then a table and a file of all samples."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench import contestant, environment, measure
from bench.contestant import MARKS, OUT, Contestant
from bench.noise import CALM, Noise, wait_for_calm
from bench.report import Sample, table

T = TypeVar("T")
HUEY_THREADS = ("1", "4", "8")


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    rounds: int
    concurrency: int
    patience: float
    tries: int = 4
    jobs: int = 20_000
    deep: int = 500_000
    singles: int = 3_000
    latencies: int = 200
    trial: int = 3_000


class Run:
    """One run on one machine; ``samples`` grows as it goes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: list[Sample] = []
        self.ours = contestant.ours(plan.concurrency)
        self.litequeue, self.huey = contestant.litequeue(), contestant.huey()
        self.contestants = [self.ours, self.litequeue, self.huey]
        self.huey_threads = HUEY_THREADS[0]

    def prepare(self) -> None:
        for peer in (self.litequeue, self.huey):
            environment.install(peer)
        self.ours.version = environment.version(self.ours)
        self._waiting = self._backlog("waiting")
        self._delayed = self._backlog("delayed")
        self.huey_threads = self._best_for_huey()
        say(f"huey is at its best with {self.huey_threads} threads")

    def round(self, number: int) -> None:
        # What is over in a moment is taken several times: a shared machine changes its pace from second to second.
        for one in (self.ours, self.litequeue) * 3 + (self.huey,):
            self._enqueue(number, "bulk", one, self.plan.jobs)
        for one in (self.ours, self.litequeue, self.ours, self.huey):
            self._drain(number, "drain", one)
        for what, template in (("waiting", self._waiting), ("delayed", self._delayed)) * 2:
            self._drain(number, "beside nothing", self.ours)
            self._drain(number, f"beside {what}", self.ours, template)
        self._keep(number, "disk", "the disk", self._measure(lambda: None, lambda: measure.disk(OUT)))
        for one in self.contestants:
            self._enqueue(number, "single", one, self.plan.singles)
        self._enqueue(number, "crowd", self.ours, self.plan.singles)
        for one in self.contestants:
            self._latency(number, one)

    def clean(self) -> None:
        MARKS.unlink(missing_ok=True)
        shutil.rmtree(OUT / "stores", ignore_errors=True)

    def _enqueue(self, number: int, how: str, one: Contestant, jobs: int) -> None:
        self._keep(number, how, one.name, self._measure(one.fresh, lambda: measure.enqueue(one, how, jobs)))

    def _drain(self, number: int, what: str, one: Contestant, template: Path | None = None) -> None:
        arguments = (self.huey_threads,) if one is self.huey else ()

        def prepare() -> None:
            one.fresh(template)
            if template is None or template != self._waiting:  # of those that wait, the first are drained
                one.run("fill", self.plan.jobs)

        drained = self._measure(prepare, lambda: measure.drain(one, self.plan.jobs, *arguments))
        self._keep(number, what, one.name, drained.rate)
        self._keep(number, "memory", one.name, drained.megabytes)

    def _latency(self, number: int, one: Contestant) -> None:
        arguments = ("1", "fast") if one is self.huey else ()
        took = self._measure(one.fresh, lambda: measure.latency(one, self.plan.latencies, *arguments))
        self._keep(number, "latency p50", one.name, took.p50)
        self._keep(number, "latency p99", one.name, took.p99)

    def _backlog(self, name: str) -> Path:
        say(f"making a store with {self.plan.deep:,} {name} jobs")
        self.ours.fresh()
        self.ours.run("fill", self.plan.deep, name)
        return self.ours.db.rename(self.ours.stores.parent / f"{name}.db")

    def _best_for_huey(self) -> str:
        """The settings take turns, too: one trial each would choose by the machine's mood."""

        def prepare() -> None:
            self.huey.fresh()
            self.huey.run("fill", self.plan.trial)

        def trial(threads: str) -> float:
            return self._measure(prepare, lambda: measure.drain(self.huey, self.plan.trial, threads).rate)

        rates = [[trial(threads) for threads in HUEY_THREADS] for _ in range(3)]
        medians = [median(column) for column in zip(*rates, strict=True)]
        return HUEY_THREADS[medians.index(max(medians))]

    def _measure(self, prepare: Callable[[], None], take: Callable[[], T]) -> T:
        """Measure again while others disturb it, a few times at most, and keep the calmest."""
        calmest: tuple[float, T] | None = None
        for _ in range(self.plan.tries):
            prepare()
            wait_for_calm(self.plan.patience)
            noise = Noise()
            taken = take()
            cores = noise.cores()
            if calmest is None or cores < calmest[0]:
                calmest = cores, taken
            if cores < CALM:
                break
        assert calmest is not None
        self._noise, taken = calmest
        return taken

    def _keep(self, number: int, metric: str, name: str, value: float) -> None:
        self.samples.append(Sample(number, metric, name, value, self._noise))
        say(f"round {number}: {metric}, {name}: {value:,.1f}   (others used {self._noise:.1f} cores)")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100, help="of our worker (default 100)")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds to wait for a calm machine before a measurement"
    )
    parser.add_argument("--quick", action="store_true", help="one small round: does it all still run?")
    options = parser.parse_args()
    plan = Plan(options.rounds, options.concurrency, options.patience)
    if options.quick:
        small = {"jobs": 2_000, "deep": 20_000, "singles": 300, "latencies": 40, "trial": 300}
        plan = replace(plan, rounds=1, patience=0.0, tries=1, **small)
    run = Run(plan)
    began = time.monotonic()
    try:
        run.prepare()
        for number in range(1, plan.rounds + 1):
            run.round(number)
    finally:
        run.clean()
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "minutes": round((time.monotonic() - began) / 60, 1),
        "huey threads": run.huey_threads,
    } | {one.name: one.version for one in run.contestants}
    for name, fact in (facts | {"plan": plan}).items():
        print(f"{name}: {fact}")
    print("\n" + table(run.samples, plan.deep))
    latest = {"facts": facts, "plan": asdict(plan), "samples": [asdict(sample) for sample in run.samples]}
    (OUT / ("quick.json" if options.quick else "latest.json")).write_text(json.dumps(latest, indent=1))
