"""The run on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from pathlib import Path

from bench import measure, sqlite
from bench.plan import Plan
from bench.rounds import Rounds, say
from bench.sqlite import OnFile


class SQLiteRounds(Rounds):
    store = "sqlite"
    alone = ("beside", "crowd")

    def __init__(self, plan: Plan, only: Collection[str] = (), without: Collection[str] = ()) -> None:
        super().__init__(plan, only, without)
        self.ours = sqlite.ours(plan.concurrency)
        self.peers = [sqlite.litequeue(), sqlite.huey()]

    def steps(self) -> dict[str, Callable[[int], None]]:
        return {
            "bulk": self._bulk,
            "drain": self._drains,
            "beside": self._beside,
            "disk": self.disk,
            "single": self._singles,
            "crowd": lambda number: self.enqueue(number, "crowd", self.ours, self.plan.singles),
            "latency": self._latencies,
        }

    def prepare(self) -> None:
        self.install([self.ours, *self.peers])
        if self.wants("drain"):
            for one in self._all:
                self.find_best(one, self.plan.trial, partial(self._fill, one, self.plan.trial))

    @property
    def _all(self) -> list[OnFile]:
        return [one for one in (self.ours, *self.peers) if one in self.contestants]

    def _bulk(self, number: int) -> None:
        # What is over in a moment is taken several times: a shared machine changes its pace from second to second.
        litequeue, huey = self.peers
        for one in [self.ours, litequeue] * 3 + [huey]:
            if one in self._all:
                self.enqueue(number, "bulk", one, self.plan.jobs)

    def _drains(self, number: int) -> None:
        litequeue, huey = self.peers
        for one in (self.ours, litequeue, self.ours, huey):
            if one in self._all:
                self._drain(number, "drain", one)

    def _beside(self, number: int) -> None:
        for what, template in (("waiting", self._waiting), ("delayed", self._delayed)) * 2:
            self._drain(number, "beside nothing", self.ours)
            self._drain(number, f"beside {what}", self.ours, template)

    def _singles(self, number: int) -> None:
        for one in self._all:
            self.enqueue(number, "single", one, self.plan.singles)

    def _latencies(self, number: int) -> None:
        for one in self._all:
            self.latency(number, one)

    def _drain(self, number: int, what: str, one: OnFile, template: Path | None = None) -> None:
        def prepare() -> None:
            # Of those that wait, the first are drained.
            self._fill(one, 0 if template and template == self._waiting else self.plan.jobs, template)

        drained = self.measure(prepare, lambda: measure.drain(one, self.plan.jobs, *one.best))
        self.keep(number, what, one.name, drained.rate)
        self.keep(number, "memory", one.name, drained.megabytes)

    def _fill(self, one: OnFile, jobs: int, template: Path | None = None) -> None:
        one.fresh(template)
        if jobs:
            one.run("fill", jobs)

    @cached_property
    def _waiting(self) -> Path:
        return self._backlog("waiting")

    @cached_property
    def _delayed(self) -> Path:
        return self._backlog("delayed")

    def _backlog(self, name: str) -> Path:
        say(f"making a store with {self.plan.deep:,} {name} jobs")
        self.ours.fresh()
        self.ours.run("fill", self.plan.deep, name)
        return self.ours.file.rename(self.ours.stores.parent / f"{name}.db")
