"""The run on PostgreSQL, with a server of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import cached_property, partial
from statistics import median

from bench import crew, measure, postgres, rows
from bench.plan import Plan
from bench.postgres import OnServer
from bench.producer import WARM
from bench.rounds import Rounds, say
from bench.server import Server

FLOOR = "COPY"
SCANS = 20


class PostgresRounds(Rounds):
    store = "postgres"
    alone = ("copy", "crew", "waiting", "finished", "snapshot", "reaper", "crowd")

    def __init__(self, plan: Plan, only: Collection[str] = (), without: Collection[str] = ()) -> None:
        super().__init__(plan, only, without)
        self.server = Server()
        self.servers = self.server.cpu
        self.ours = postgres.ours(self.server, plan.concurrency)
        self.peers = postgres.peers(self.server)

    def steps(self) -> dict[str, Callable[[int], None]]:
        return {
            "bulk": self._bulk,
            "copy": self._copy,
            "drain": self._drains,
            "crew": self._crew,
            "waiting": lambda number: self._beside(number, "waiting"),
            "finished": lambda number: self._beside(number, "finished"),
            "snapshot": self._snapshot,
            "reaper": self._reaper,
            "disk": self.disk,
            "single": self._singles,
            "crowd": lambda number: self.enqueue(number, "crowd", self.ours, self.plan.singles),
            "latency": self._latencies,
        }

    def prepare(self) -> None:
        self.server.start()
        self.facts["PostgreSQL"] = self.server.execute("SHOW server_version")
        self.install([self.ours, *self.peers])
        for one in self._all:
            one.set_up()
        if self.wants("drain"):
            jobs = self.plan.jobs // 2  # with fewer, large batches seem worse than they are
            for one in self._all:
                self.find_best(one, jobs, partial(self._fill, one, jobs))

    def clean(self) -> None:
        self.server.stop()
        super().clean()

    @property
    def _all(self) -> list[OnServer]:
        return [one for one in (self.ours, *self.peers) if one in self.contestants]

    def _bulk(self, number: int) -> None:
        # What is over in a moment is taken several times: a shared machine changes its pace from second to second.
        for one in self._all * 3:
            self.enqueue(number, "bulk", one, self.plan.jobs)

    def _copy(self, number: int) -> None:
        """The floor under enqueueing many, in turn with it."""
        for metric, formatted in (("copy", False), ("copy of text", True)) * 3:
            self.enqueue(number, "bulk", self.ours, self.plan.jobs)
            take = partial(rows.copy_in, self.ours.url, self._rows, self.plan.jobs, formatted=formatted)
            self.keep(number, metric, FLOOR, self.measure(self.ours.fresh, take))

    def _drains(self, number: int) -> None:
        for one in self.peers:
            for contestant in (self.ours, one):
                if contestant in self._all:
                    self._drain(number, "drain", contestant, self.plan.jobs)

    def _crew(self, number: int) -> None:
        """Twice the jobs, because it is about a few hundredths."""
        jobs = 2 * self.plan.jobs
        for size, name in ((1, "one worker"), (2, "two workers")) * 2:
            fill = partial(self._fill, self.ours, jobs)
            worked = self.measure(fill, partial(crew.drain, self.server, self.ours, jobs, size))
            self.keep(number, name, self.ours.name, worked.rate)
            self.keep(number, f"{name} cpu", self.ours.name, worked.milliseconds)

    def _beside(self, number: int, what: str) -> None:
        template = self._waiting if what == "waiting" else self._finished
        for _ in range(2):
            self._drain(number, "beside nothing", self.ours, self.plan.jobs)
            self._drain(number, f"beside {what}", self.ours, self.plan.jobs, template)

    def _snapshot(self, number: int) -> None:
        self._drain(number, "without snapshot", self.ours, self.plan.long)
        with contextlib.ExitStack() as reader:

            def prepare() -> None:
                reader.close()  # of the try before, or the database could not be dropped
                self.ours.fresh()
                reader.enter_context(self.ours.snapshot())
                self.ours.run("fill", self.plan.long)
                self.ours.settle_down()

            drained = self.measure(prepare, partial(measure.drain, self.ours, self.plan.long))
        self.keep(number, "with snapshot", self.ours.name, drained.rate)

    def _reaper(self, number: int) -> None:
        fresh = partial(self.ours.fresh, self._scanned)
        took = self.measure(fresh, lambda: self.ours.run("reclaim", SCANS)["milliseconds"])
        self.keep(number, "reaper", self.ours.name, median(took))

    def _singles(self, number: int) -> None:
        for one in self._all:
            self.enqueue(number, "single", one, self.plan.singles)

    def _latencies(self, number: int) -> None:
        for one in self._all:
            self.latency(number, one)

    def _drain(self, number: int, what: str, one: OnServer, jobs: int, template: str | None = None) -> None:
        # Of those that wait, the first are drained.
        fill = partial(self._fill, one, 0 if what == "beside waiting" else jobs, template)
        drained = self.measure(fill, partial(measure.drain, one, jobs, *one.best))
        self.keep(number, what, one.name, drained.rate)
        if what == "drain":
            self.keep(number, "memory", one.name, drained.megabytes)

    def _fill(self, one: OnServer, jobs: int, template: str | None = None) -> None:
        one.fresh(template)
        if jobs:
            one.run("fill", jobs)
        one.settle_down()

    @cached_property
    def _rows(self) -> rows.Rows:
        self.ours.fresh()
        self.ours.run("fill", self.plan.jobs + WARM)
        return rows.read(self.ours.url)

    @cached_property
    def _waiting(self) -> str:
        say(f"making a database with {self.plan.deep:,} waiting jobs")
        self.ours.fresh()
        self.ours.run("fill", self.plan.deep)
        self.server.execute("VACUUM (ANALYZE)", self.ours.database)
        return self.ours.keep("waiting")

    @cached_property
    def _finished(self) -> str:
        say(f"making a database with {self.plan.finished:,} finished jobs")
        self._finish_one()
        rows.clone(self.ours.url, "completed", self.plan.finished, rows.FINISHED)
        return self.ours.keep("finished")

    @cached_property
    def _scanned(self) -> str:
        say(f"making a database with {self.plan.scanned:,} finished and running jobs")
        running = self.plan.scanned // 10
        self._finish_one()
        self.ours.run("fill", 1)
        rows.clone(self.ours.url, "completed", self.plan.scanned - running, rows.FINISHED)
        rows.clone(self.ours.url, "pending", running, rows.PROCESSING)
        return self.ours.keep("scanned")

    def _finish_one(self) -> None:
        """A job that a worker finished, for clones that are as real ones are."""
        self._fill(self.ours, 1)
        measure.drain(self.ours, 1)
