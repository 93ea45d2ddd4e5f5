"""The run on Neo4j, with a server of its own. Nobody else queues there, so floors and plain queries are the contestants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from typing import NamedTuple

from support.neo4j import QUEUE, Neo4j, version

from bench import neo4j
from bench.contestant import OURS, OUT
from bench.neo4j import Bench, Loop, Take
from bench.plan import Plan
from bench.rounds import Rounds
from bench.server import seconds

BATCHES = (1, 10, 50, 200)
FINISHED = 200_000
TURNS = 3  # in each round: the server's pace goes up and down by the second
WARM_UP = 400  # calls


class Way(NamedTuple):
    """How somebody leases and settles, the label of his jobs, and what part of the jobs he is given: some are slow."""

    loop: Loop
    label: str
    part: int = 1


WAYS = {
    OURS: Way(neo4j.ours, "EmbedJob"),
    "one bare statement": Way(neo4j.bare, "Bare"),
    "an empty write a batch": Way(neo4j.empty, "Bare"),
    "plain queries": Way(neo4j.plain, "Plain", 8),
}


class Neo4jRounds(Rounds):
    store = "neo4j"

    def __init__(self, plan: Plan, only: Collection[str] = (), without: Collection[str] = ()) -> None:
        super().__init__(plan, only, without)
        self.server = Neo4j(QUEUE)
        self.servers = lambda: seconds(self.server.child.pid) if self.server.running else 0.0
        self._finished = FINISHED if plan.jobs >= 20_000 else FINISHED // 20

    def steps(self) -> dict[str, Callable[[int], None]]:
        return {"batches": self._batches, "beside": self._beside}

    def prepare(self) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        self.server.start()
        self.facts["Neo4j"] = f"{version()} Community"
        for batch in (10, 50):  # the server compiles what it does often, and a longer statement later
            for way in WAYS.values():
                self._rate(way, WARM_UP * batch // way.part // batch * batch, batch)

    def clean(self) -> None:
        self.server.__exit__()
        super().clean()

    def _batches(self, number: int) -> None:
        for batch, _, name in product(BATCHES, range(TURNS), WAYS):
            if name not in self.without:
                rate = self.measure(lambda: None, partial(self._turn, WAYS[name], batch))
                self.keep(number, f"batches of {batch}", name, rate)

    def _turn(self, way: Way, batch: int) -> float:
        jobs = min(self.plan.jobs, 400 * batch) // TURNS // way.part
        return self._rate(way, max(1, jobs // batch) * batch, batch)

    def _beside(self, number: int) -> None:
        for metric, finished in (("lease", 0), ("lease beside finished", self._finished)):
            took = self.measure(lambda: None, lambda: self._lease(finished))  # noqa: B023 - called at once
            self.keep(number, metric, OURS, took)

    def _rate(self, way: Way, jobs: int, batch: int) -> float:
        return self._take(lambda bench: bench.rate(way.loop, jobs, batch), way.label, jobs + batch)

    def _lease(self, finished: int) -> float:
        async def take(bench: Bench) -> float:
            if finished:
                await bench.run(neo4j.FINISHED, count=finished, payload=neo4j.PAYLOAD)
            await bench.lease_ms(50, 20)
            return await bench.lease_ms(50, 40)

        return self._take(take, "EmbedJob", 4000)

    def _take(self, take: Take, label: str, fill: int) -> float:
        async def work() -> float:
            async with Bench(self.server.url()) as bench:
                await bench.fill(label, fill)
                return await take(bench)

        return asyncio.run(work())
