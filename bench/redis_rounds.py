"""The run on Redis, with a server of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from bench import measure, redis
from bench.plan import Plan
from bench.redis import OnRedis
from bench.redis_server import RedisServer
from bench.rounds import Rounds


class RedisRounds(Rounds):
    store = "redis"
    alone = ("crowd",)

    def __init__(self, plan: Plan, only: Collection[str] = (), without: Collection[str] = ()) -> None:
        super().__init__(plan, only, without)
        self.server = RedisServer()
        self.servers = self.server.cpu
        self.ours = redis.ours(self.server, plan.concurrency)
        self.peers = redis.peers(self.server)

    def steps(self) -> dict[str, Callable[[int], None]]:
        return {
            "bulk": self._bulk,
            "drain": self._drains,
            "single": self._singles,
            "crowd": lambda number: self.enqueue(number, "crowd", self.ours, self.plan.singles),
            "latency": self._latencies,
        }

    def prepare(self) -> None:
        self.server.start()
        self.facts["Redis"] = self.server.version
        self.install([self.ours, *self.peers])
        if self.wants("drain"):
            for one in self._all:
                self.find_best(one, self.plan.jobs // 4, partial(self._fill, one, self.plan.jobs // 4))

    def clean(self) -> None:
        self.server.stop()
        super().clean()

    @property
    def _all(self) -> list[OnRedis]:
        return [one for one in (self.ours, *self.peers) if one in self.contestants]

    def _bulk(self, number: int) -> None:
        for one in self._all:
            self.enqueue(number, "bulk", one, self.plan.jobs)

    def _drains(self, number: int) -> None:
        for one in self.peers:
            for contestant in (self.ours, one):
                if contestant in self._all:
                    self._drain(number, contestant)

    def _singles(self, number: int) -> None:
        for one in self._all:
            self.enqueue(number, "single", one, self.plan.singles)

    def _latencies(self, number: int) -> None:
        for one in self._all:
            self.latency(number, one)

    def _drain(self, number: int, one: OnRedis) -> None:
        fill = partial(self._fill, one, self.plan.jobs)
        drained = self.measure(fill, partial(measure.drain, one, self.plan.jobs, *one.best))
        self.keep(number, "drain", one.name, drained.rate)
        self.keep(number, "memory", one.name, drained.megabytes)

    def _fill(self, one: OnRedis, jobs: int) -> None:
        one.fresh()
        one.run("fill", jobs)
