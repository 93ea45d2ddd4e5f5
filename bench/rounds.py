"""What the runs on all stores share: rounds of steps in which contestants take turns, and samples that grow."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from statistics import median
from typing import TypeVar

from bench import environment, measure
from bench.contestant import MARKS, OURS, OUT, Contestant
from bench.noise import CALM, Noise, nobody, wait_for_calm
from bench.plan import Plan
from bench.report import Sample

T = TypeVar("T")


class Rounds:
    """One run on one machine and one store. ``only`` names the steps to take, if not all."""

    store: str
    alone: Collection[str] = ()  # steps for nobody but us
    servers: Callable[[], float] = staticmethod(nobody)  # processor seconds of servers of our own

    def __init__(self, plan: Plan, only: Collection[str] = (), without: Collection[str] = ()) -> None:
        self.plan = plan
        self.only = only
        self.without = without
        self.samples: list[Sample] = []
        self.contestants: list[Contestant] = []
        self.facts: dict[str, str] = {}

    def steps(self) -> dict[str, Callable[[int], None]]:
        """By name, in their order; each gets the number of the round."""
        raise NotImplementedError

    def prepare(self) -> None:
        raise NotImplementedError

    def round(self, number: int) -> None:
        for name, step in self.steps().items():
            if self.wants(name):
                step(number)

    def wants(self, step: str) -> bool:
        if step in self.alone and OURS in self.without:
            return False
        return not self.only or step in self.only

    def clean(self) -> None:
        MARKS.unlink(missing_ok=True)
        shutil.rmtree(OUT / "stores", ignore_errors=True)

    def install(self, contestants: Sequence[Contestant]) -> None:
        """Those that cannot be had are told and left out."""
        for one in contestants:
            if one.name in self.without:
                continue
            if one.name == OURS:
                one.version = environment.version(one)
                self.contestants.append(one)
            elif environment.install(one):
                self.contestants.append(one)
            else:
                say(f"{one.name} is left out: it cannot be installed here")
                self.facts[one.name] = "could not be installed"

    def enqueue(self, number: int, how: str, one: Contestant, jobs: int) -> None:
        self.keep(number, how, one.name, self.measure(one.fresh, lambda: measure.enqueue(one, how, jobs)))

    def latency(self, number: int, one: Contestant) -> None:
        took = self.measure(one.fresh, lambda: measure.latency(one, self.plan.latencies, *one.idle))
        self.keep(number, "latency p50", one.name, took.p50)
        self.keep(number, "latency p99", one.name, took.p99)

    def disk(self, number: int) -> None:
        self.keep(number, "disk", "the disk", self.measure(lambda: None, lambda: measure.disk(OUT)))

    def find_best(self, one: Contestant, jobs: int, fill: Callable[[], None]) -> None:
        """The settings take turns, too: one trial each would choose by the machine's mood."""
        if len(one.settings) > 1:

            def trial(setting: tuple[str, ...]) -> float:
                return self.measure(fill, lambda: measure.drain(one, jobs, *setting).rate)

            rates = [[trial(setting) for setting in one.settings] for _ in range(3)]
            medians = [median(column) for column in zip(*rates, strict=True)]
            one.best = one.settings[medians.index(max(medians))]
            tried = ", ".join(f"{' '.join(a)}: {b:,.0f}" for a, b in zip(one.settings, medians, strict=True))
            self.facts[f"{one.name} at its best"] = f"{' '.join(one.best)} (jobs/s with {tried})"
            say(f"{one.name} is at its best with {' '.join(one.best)}; {tried}")

    def measure(self, prepare: Callable[[], None], take: Callable[[], T]) -> T:
        """Measure again while others disturb it, a few times at most, and keep the calmest."""
        calmest: tuple[float, T] | None = None
        for _ in range(self.plan.tries):
            prepare()
            wait_for_calm(self.plan.patience)
            noise = Noise(self.servers)
            taken = take()
            cores = noise.cores()
            if calmest is None or cores < calmest[0]:
                calmest = cores, taken
            if cores < CALM:
                break
        assert calmest is not None
        self._noise, taken = calmest
        return taken

    def keep(self, number: int, metric: str, name: str, value: float) -> None:
        self.samples.append(Sample(number, metric, name, value, self._noise))
        shown = f"{value:,.1f}" if value >= 1 else f"{value:.3f}"
        say(f"round {number}: {metric}, {name}: {shown}   (others used {self._noise:.1f} cores)")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
