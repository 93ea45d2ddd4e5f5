"""Neo4jStore: the Store protocol on a Neo4j server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from unstuck.protocol.availability import Clock
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import Fleet, WorkerInfo
from unstuck.protocol.job import Enqueued, Job, Json, NewJob, Ref, Status
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Reclaimed, Recovery, Share
from unstuck.protocol.limits import Grant, latest
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.records import PAGE, Kept, Record
from unstuck.stores.neo4j import operate, rows, steps, wakeup
from unstuck.stores.neo4j.address import Neo4jAddress
from unstuck.stores.neo4j.checkup import checkup, has_apoc
from unstuck.stores.neo4j.client import PATIENCE, Asked, Neo4jClient
from unstuck.stores.neo4j.create import absent, create
from unstuck.stores.neo4j.migrate import fill, migrate
from unstuck.stores.shared import keeping
from unstuck.stores.shared.events import FORGET_AT_ONCE, MANY_PIECES, UNREADABLE
from unstuck.stores.shared.heads import FEW, ManyQueues
from unstuck.stores.shared.settling import fits_one_statement
from unstuck.stores.shared.values import json_text, milliseconds

log = logging.getLogger("unstuck.neo4j")

UPKEEP = 60.0  # seconds between checks for jobs of other programs and for counters in many pieces
MEET_AGAIN = 5.0  # seconds after which an empty answer may mean that a queue's node is gone
ENQUEUED_A_SECOND = 500  # a lower bound: many jobs get more time than PATIENCE by this rate


class Neo4jStore:
    """Every operation is one statement, or a few that commit together."""

    def __init__(self, address: Neo4jAddress) -> None:
        self._address = address
        self._client: Neo4jClient | None = None
        self._met: dict[str, float] = {}
        self._many = ManyQueues()
        self._kept_up = -UPKEEP
        self._apoc: bool | None = None

    async def __aenter__(self) -> Self:
        self._client = Neo4jClient(self._address)
        try:
            await self._client.identify()
        except BaseException as error:
            if not absent(error):  # migrate can create a missing database
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def twin(self) -> Neo4jStore:
        return Neo4jStore(self._address)

    async def migrate(self) -> None:
        await create(self._opened())
        await migrate(self._opened())

    async def clock(self) -> Clock:
        return await operate.clock(self._opened())

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        given = steps.new(jobs, self._address)
        patience = PATIENCE + len(jobs) / ENQUEUED_A_SECOND
        client = self._opened()
        if (asked := steps.simple(given, self._address)) is None:
            return await client.transaction(
                lambda ask: steps.enqueue(ask, given, self._address), safe=True, patience=patience
            )
        answers = steps.added(jobs, await client.ask(*asked, safe=True, patience=patience), self._address)
        return [answers[number] for number in range(len(jobs))]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        await self._meet(queues)
        if len(queues) <= FEW:
            return await self._lease(queues, limit, owner)

        async def lease(some: Mapping[str, Share], most: int) -> list[Job]:
            return await self._lease(some, most, owner)

        return await self._many.lease(
            queues, limit, lease, lambda: steps.having_work(self._opened().share, queues)
        )

    async def _lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        crowded = any((share.at_a_time, share.per_lane) != (None, None) for share in queues.values())
        if crowded or self._address.all_events:
            found = await self._opened().transaction(
                lambda ask: steps.lease(ask, queues, limit, owner, self._address)
            )
        else:
            found = sorted(
                await self._opened().share("lease", steps.leasing(queues, limit, owner)),
                key=lambda one: one[0],
            )
        if not found:
            self._forget(queues)
        return await self._readable(rows.read((node for _, node in found), self._address))

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        return await steps.heartbeat(self._ask, worker, beats, self._address)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        if fits_one_statement(outcomes):
            name, params = steps.settling(outcomes, self._address)
            client = self._opened()
            applied = await (
                client.share(name, params) if name == "complete" else client.ask(name, params, safe=True)
            )
            return await steps.settled(self._ask, outcomes, applied, self._address)
        follow = {
            n: steps.new(outcome.then, self._address) for n, outcome in enumerate(outcomes) if outcome.then
        }
        return await self._opened().transaction(
            lambda ask: steps.settle(ask, outcomes, follow, self._address), safe=True
        )

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        await self._keep_up()
        asked = steps.reclaiming(recovery)
        adopted, taken, end = await self._opened().ask_all(asked)
        read = rows.read((node | {"fence": fence} for node, fence in taken), self._address)
        jobs = await self._readable(read)
        return Reclaimed(jobs, adopted, None if end is None else max(0.0, end / 1000))

    async def take(self, bucket: str, wanted: int = 0, capacity: int = 0, interval: float = 0.0) -> Grant:
        if wanted < 1:
            return operate.grant(await self._ask("bucket", {"bucket": bucket}))
        facts: rows.Params = {"wanted": wanted, "capacity": capacity, "interval": milliseconds(interval)}
        facts |= {"bucket": bucket, "latest": milliseconds(latest(interval))}
        return operate.grant(await self._opened().ask("take", facts))

    async def give_back(self, bucket: str, count: int = 0, stamp: int = 0, *, close_for: float = 0.0) -> None:
        back = Asked("give_back", {"bucket": bucket, "count": count, "stamp": stamp})
        close = Asked("close", {"bucket": bucket, "closed_for": milliseconds(close_for)})
        if count > 0:
            await self._opened().ask_all([back, close] if close_for > 0 else [back])
        elif close_for > 0:
            await self._ask(*close)

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        given = steps.new(jobs, self._address)
        return await self._opened().transaction(
            lambda ask: steps.tick(ask, schedule, slot, given, self._address, instead_of)
        )

    async def keep(self, kind: str, name: str, value: Json, version: int = 0) -> Kept:
        change = keeping.change(kind, name, value, version)
        found = await self._ask("keep", change.params)
        return keeping.answer(change, None if found is None else rows.record(*found))

    async def kept(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        keeping.check_listing(kind, after)
        if limit < 1:
            return []
        found = await self._ask("kept", {"kind": kind, "after": after, "limit": min(limit, PAGE)})
        # One that was deleted during the read has nothing left.
        return [keeping.record(kind, name, *rows.record(*facts)) for name, *facts in found if all(facts)]

    async def forget(self, kind: str, older_than: float, limit: int = 1000) -> int:
        keeping.check_age(kind, older_than)
        if limit < 1:
            return 0
        facts = {"kind": kind, "age": milliseconds(older_than), "limit": limit}
        return int(await self._opened().ask("forget", facts))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if not queues:
            await asyncio.sleep(timeout)
        else:
            await wakeup.wait(self._look, queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await operate.find(self._opened(), which, limit, cursor)

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        return await operate.count(self._opened(), ahead_of)

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        rules = await operate.broken_rules(self._opened()) if deep else []
        return await checkup(self._opened()) + rules

    async def fleet(self) -> Fleet:
        return await operate.fleet(self._opened())

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await operate.events(self._opened(), after, job, limit)

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        return 0 if which.ids == () else await operate.requeue(self._opened(), which, limit)

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await operate.delete(self._opened(), which, limit, apoc=await self._has_apoc())

    async def cancel(self, refs: Sequence[Ref]) -> int:
        return await operate.cancel(self._opened(), refs) if refs else 0

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        if not refs or (priority is None and run_at is None):
            return 0
        return await operate.edit(self._opened(), refs, priority, run_at)

    async def pause(self, queue: str, why: str | None) -> bool:
        if why is None:
            return bool(await self._opened().ask("resume", {"queue": queue}))
        await self._opened().ask("pause", steps.pausing(queue, why))
        return True

    async def _has_apoc(self) -> bool:
        if self._apoc is None:
            self._apoc = await has_apoc(self._opened())
            how = "through APOC" if self._apoc else "in bounded batches, because APOC is not installed"
            log.info("cleanup of old jobs runs %s", how)
        return self._apoc

    async def _look(self, queues: Sequence[str]) -> tuple[bool, int | None]:
        names = await steps.having_work(self._ask, frozenset(queues), any_time=True)
        if not names:
            return False, None
        ready, due = await self._ask("work", {"queues": list(names)})
        return ready, due

    async def _keep_up(self) -> None:
        if time.monotonic() - self._kept_up < UPKEEP:
            return
        self._kept_up = time.monotonic()
        await fill(self._opened(), (Status.PENDING, Status.PROCESSING))
        await self._opened().ask("fold", {"many": MANY_PIECES})
        await self._opened().ask("forget_spacing", {"limit": FORGET_AT_ONCE})

    async def _meet(self, queues: Mapping[str, Share]) -> None:
        """Make sure that queues have a node, which leases and pauses lock."""
        if queues.keys() <= self._met.keys():
            return
        if unmet := sorted(queues.keys() - self._met.keys()):
            await self._ask("meet", {"queues": unmet})
            self._met |= dict.fromkeys(unmet, time.monotonic())

    def _forget(self, queues: Mapping[str, Share]) -> None:
        """Check the nodes of these queues again: if the database was wiped, a queue without its node would seem empty for ever."""
        long_ago = time.monotonic() - MEET_AGAIN
        self._met = {name: met for name, met in self._met.items() if name not in queues or met > long_ago}

    async def _readable(self, read: rows.ReadJobs) -> list[Job]:
        """The jobs that can be read; the others are set aside, so that they do not block the queue."""
        for node, why in read.unreadable:
            facts = rows.failure(UNREADABLE) | rows.kept(node) | {"details": json_text({"why": why})}
            await self._ask("quarantine", facts | {"address": node.get("id")})
        return read.jobs

    async def _ask(self, name: str, params: rows.Params) -> Any:
        """Run a statement that has the same effect if it runs twice."""
        return await self._opened().ask(name, params, safe=True)

    def _opened(self) -> Neo4jClient:
        if self._client is None:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        return self._client
