"""What goes wrong in a run, one thing at a time, chosen by chance. Each fault records whom it harmed and when."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from chaos.crowd import WORKER_GROUPS, Crowd, send
from chaos.place import GROUPS, Place
from chaos.terms import LEASE
from unstuck import Filter, Jobs, Status, StoreError


@dataclass(frozen=True, slots=True)
class Harm:
    """Workers that may rightly lose what they hold: these pids, between these moments (monotonic nanoseconds)."""

    kind: str
    pids: frozenset[int]
    since: int
    until: int


class Span(NamedTuple):
    """A fault and how long it lasted (monotonic nanoseconds)."""

    name: str
    since: int
    until: int


@dataclass
class Faults:
    where: Place
    crowd: Crowd
    jobs: Jobs
    chance: random.Random
    harms: list[Harm] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)

    def kinds(self) -> dict[str, tuple[int, Callable[[], Awaitable[None]]]]:
        """Every fault that this store can meet, with its weight."""
        found: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "worker killed": (10, self.kill_worker),
            "supervisor killed": (3, self.kill_supervisor),
            "fork server killed": (2, self.kill_fork_server),
            "producer killed": (2, self.kill_producer),
            "worker frozen beyond its lease": (4, self.freeze_long),
            "worker frozen for half a lease": (3, self.freeze_short),
            "worker stopped by a stranger": (2, self.stop_worker),
            "queue paused": (2, self.pause_queue),
            "jobs cancelled": (2, self.cancel_jobs),
        }
        if self.where.file is not None:
            found["write lock held beyond a lease"] = (3, self.hold_lock)
        else:
            found["server killed"] = (3, self.kill_server)
            found["server frozen"] = (2, self.freeze_server)
            found["all lines cut beyond a lease"] = (3, self.cut_all)
            found["one line cut beyond a lease"] = (2, self.cut_one)
            found["all connections reset"] = (4, self.reset_all)
            found["a reply lost"] = (4, self.lose_reply)
        return found

    async def one(self) -> str:
        kinds = self.kinds()
        [name] = self.chance.choices(list(kinds), [weight for weight, _ in kinds.values()])
        since = time.monotonic_ns()
        await kinds[name][1]()
        self.spans.append(Span(name, since, time.monotonic_ns()))
        return name

    def _harm(self, kind: str, pids: set[int], since: int) -> None:
        self.harms.append(Harm(kind, frozenset(pids), since, time.monotonic_ns()))

    async def kill_worker(self) -> None:
        if (found := self.crowd.one_worker()) is None:
            return
        since = time.monotonic_ns()
        send(found[1], signal.SIGKILL)
        self.crowd.ledger.died(found[1])
        self._harm("killed", {found[1]}, since)

    async def kill_supervisor(self) -> None:
        group = self.chance.choice(WORKER_GROUPS)
        since = time.monotonic_ns()
        workers = set(self.crowd.workers(group))
        supervisor = self.crowd.supervisors[group]
        supervisor.terminate(signal.SIGKILL)
        await asyncio.to_thread(supervisor.wait)
        self.crowd.supervise(group)
        self._harm("supervisor killed", workers, since)

    async def kill_fork_server(self) -> None:
        if found := self.crowd.fork_servers():
            pid, worker = self.chance.choice(found)
            since = time.monotonic_ns()
            send(pid, signal.SIGKILL)
            self._harm("fork server killed", {worker}, since)

    async def kill_producer(self) -> None:
        name = self.chance.choice(list(self.crowd.producers))
        producer = self.crowd.producers[name]
        producer.terminate(signal.SIGKILL)
        await asyncio.to_thread(producer.wait)
        self.crowd.produce(name)

    async def freeze_long(self) -> None:
        await self._freeze(self.chance.uniform(1.5, 3.0) * LEASE)

    async def freeze_short(self) -> None:
        await self._freeze(0.5 * LEASE)

    async def _freeze(self, seconds: float) -> None:
        if (found := self.crowd.one_worker()) is None:
            return
        since = time.monotonic_ns()
        send(found[1], signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            send(found[1], signal.SIGCONT)
        self._harm("frozen", {found[1]}, since)

    async def stop_worker(self) -> None:
        """It ends in order, gives back what it has, and is replaced."""
        if found := self.crowd.one_worker():
            send(found[1], signal.SIGTERM)

    async def pause_queue(self) -> None:
        await self._ask(lambda: self.jobs.pause("mixed", "paused by the fault driver"))
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        await self._ask(lambda: self.jobs.resume("mixed"))

    async def cancel_jobs(self) -> None:
        for status in (Status.PENDING, Status.PROCESSING):
            which = Filter(queue="mixed", status=status)
            try:
                page = await self.jobs.find(which, 3)
            except StoreError:
                return
            for job in page.jobs:
                self.cancelled.add(job.id)  # before it is asked: the answer may be lost
                await self._ask(lambda: self.jobs.cancel(job.id, job.queue))  # noqa: B023 - awaited here

    async def kill_server(self) -> None:
        server = self.where.server
        assert server is not None
        await asyncio.to_thread(server.kill9)
        await asyncio.sleep(self.chance.choice([0.0, 0.5, 1.5 * LEASE]))
        await asyncio.to_thread(server.start)

    async def freeze_server(self) -> None:
        server = self.where.server
        assert server is not None
        await asyncio.to_thread(server.pause)
        await asyncio.sleep(self.chance.uniform(1.0, 2.0 * LEASE))
        await asyncio.to_thread(server.resume)

    async def cut_all(self) -> None:
        """The server stays up, nobody reaches it: no worker may lose a job for that."""
        await self._cut(set(GROUPS))

    async def cut_one(self) -> None:
        """The others reach the store, so what this group holds rightly goes to them."""
        group = self.chance.choice(WORKER_GROUPS)
        since = time.monotonic_ns()
        workers = set(self.crowd.workers(group))
        await self._cut({group})
        workers |= set(self.crowd.workers(group))
        self._harm("cut off", workers, since)

    async def _cut(self, groups: set[str]) -> None:
        for group in groups:
            self.where.lines[group].reset(new=True)
        await asyncio.sleep(self.chance.uniform(1.2, 2.5) * LEASE)
        for group in groups:
            self.where.lines[group].heal()

    async def reset_all(self) -> None:
        for line in self.where.lines.values():
            line.reset()

    async def lose_reply(self) -> None:
        line = self.where.lines[self.chance.choice(GROUPS)]
        line.drop_reply()
        await asyncio.sleep(1.0)
        line.heal()

    async def hold_lock(self) -> None:
        """As a frozen process does that was about to write: nobody else can, and no worker may lose a job for that."""
        await asyncio.to_thread(self._hold, self.chance.uniform(1.2, 2.5) * LEASE)

    def _hold(self, seconds: float) -> None:
        connection = apsw.Connection(str(self.where.file))
        connection.set_busy_timeout(30_000)
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    async def _ask(self, ask: Callable[[], Awaitable[object]]) -> None:
        for _ in range(50):
            try:
                await ask()
            except StoreError:
                await asyncio.sleep(0.2)
            else:
                return
