"""Neo4jStore: the Store protocol on a Neo4j server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from unstuck.errors import StoreUnavailable
from unstuck.model import Beat, Event, Filter, Job, NewJob, Outcome, Ref, Settled, Status, Worker
from unstuck.store import GRACE, Blind, Clock, Counts, Enqueued, Finding, Page, Pulse, Reclaimed, Share
from unstuck.stores.neo4j import bell, operate, rows, steps
from unstuck.stores.neo4j.checkup import checkup, has_apoc
from unstuck.stores.neo4j.create import absent, create
from unstuck.stores.neo4j.lines import PATIENCE, Lines
from unstuck.stores.neo4j.migrate import fill, migrate
from unstuck.stores.neo4j.place import Place
from unstuck.stores.settling import plain
from unstuck.stores.telling import MANY_PIECES, UNREADABLE
from unstuck.stores.values import at, json_text, milliseconds, moment
from unstuck.tokens import Bucket, Grant

log = logging.getLogger("unstuck.neo4j")

UPKEEP = 60.0  # seconds between looks for jobs that others made, and for counters in many pieces
MEET_AGAIN = 5.0  # seconds after which an empty answer may mean that a queue's node is gone
ENQUEUED_A_SECOND = 500  # at the least: so much longer may many jobs take


class Neo4jStore:
    """Every operation is one statement, or a few that commit together."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lines: Lines | None = None
        self._met: dict[str, float] = {}
        self._kept_up = -UPKEEP
        self._apoc: bool | None = None

    async def __aenter__(self) -> Self:
        self._lines = Lines(self._place)
        try:
            await self._lines.identify()
        except BaseException as error:
            if not absent(error):  # that a database is missing can be mended by migrate
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            await lines.close()

    def twin(self) -> Neo4jStore:
        return Neo4jStore(self._place)

    async def migrate(self) -> None:
        await create(self._opened())
        await migrate(self._opened())

    async def clock(self) -> Clock:
        return await operate.clock(self._opened())

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        given = steps.new(jobs, self._place)
        patience = PATIENCE + len(jobs) / ENQUEUED_A_SECOND
        lines = self._opened()
        if (asked := steps.simple(given, self._place)) is None:
            return await lines.transaction(
                lambda ask: steps.enqueue(ask, given, self._place), safe=True, patience=patience
            )
        answers = steps.added(jobs, await lines.ask(*asked, safe=True, patience=patience), self._place)
        return [answers[number] for number in range(len(jobs))]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        await self._meet(queues)
        crowded = any((share.at_a_time, share.per_lane) != (None, None) for share in queues.values())
        if crowded or self._place.all_events:
            found = await self._opened().transaction(
                lambda ask: steps.lease(ask, queues, limit, owner, self._place)
            )
        else:
            found = sorted(
                await self._opened().share("lease", steps.leasing(queues, limit, owner)),
                key=lambda one: one[0],
            )
        if not found:
            self._forget(queues)
        return await self._readable(rows.read((node for _, node in found), self._place))

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        return await steps.heartbeat(self._ask, worker, beats, self._place)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        if plain(outcomes):
            name, params = steps.settling(outcomes, self._place)
            lines = self._opened()
            applied = await (
                lines.share(name, params) if name == "complete" else lines.ask(name, params, safe=True)
            )
            return await steps.settled(self._ask, outcomes, applied, self._place)
        follow = {
            n: steps.new(outcome.then, self._place) for n, outcome in enumerate(outcomes) if outcome.then
        }
        return await self._opened().transaction(
            lambda ask: steps.settle(ask, outcomes, follow, self._place), safe=True
        )

    async def reclaim(
        self,
        queues: Sequence[str] | None,
        seconds: float,
        limit: int,
        owner: str,
        *,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = GRACE,
    ) -> Reclaimed:
        await self._keep_up()
        asked = steps.reclaiming(queues, seconds, limit, owner, of, blind, grace)
        adopted, taken, end = await self._opened().ask_all(asked)
        read = rows.read((node | {"fence": fence} for node, fence in taken), self._place)
        jobs = await self._readable(read)
        return Reclaimed(jobs, adopted, None if end is None else max(0.0, end / 1000))

    async def take(self, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
        if wanted < 1:
            return Grant(0, 0.0)
        facts: rows.Params = {"wanted": wanted, "capacity": capacity, "interval": milliseconds(interval)}
        granted, wait, stamp = await self._opened().ask("take", facts | {"bucket": bucket})
        return Grant(granted, wait / 1000, stamp)

    async def give_back(self, bucket: str, count: int, stamp: int) -> None:
        if count > 0:
            await self._opened().ask("give_back", {"bucket": bucket, "count": count, "stamp": stamp})

    async def close(self, bucket: str, seconds: float) -> None:
        await self._ask("close", {"bucket": bucket, "closed_for": milliseconds(seconds)})

    async def bucket(self, name: str) -> Bucket:
        return await operate.bucket(self._opened(), name)

    async def slot(self, schedule: str) -> datetime | None:
        return moment(await self._ask("slot", {"schedule": schedule}))

    async def slots(self) -> dict[str, datetime]:
        return {name: at(slot) for name, slot in await self._ask("slots", {})}

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        given = steps.new(jobs, self._place)
        return await self._opened().transaction(
            lambda ask: steps.tick(ask, schedule, slot, given, self._place)
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if not queues:
            await asyncio.sleep(timeout)
        else:
            await bell.wait(self._look, queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await operate.find(self._opened(), which, limit, cursor)

    async def count(self) -> list[Counts]:
        return await operate.count(self._opened())

    async def checkup(self) -> list[Finding]:
        return await checkup(self._opened())

    async def verify(self) -> list[str]:
        return await operate.verify(self._opened())

    async def workers(self) -> list[Worker]:
        return await operate.workers(self._opened())

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

    async def place(self, ref: Ref) -> int:
        return await operate.place(self._opened(), ref)

    async def pause(self, queue: str, why: str) -> None:
        await self._opened().ask("pause", steps.pausing(queue, why))

    async def resume(self, queue: str) -> bool:
        return bool(await self._opened().ask("resume", {"queue": queue}))

    async def _has_apoc(self) -> bool:
        if self._apoc is None:
            self._apoc = await has_apoc(self._opened())
            how = "through APOC" if self._apoc else "in bounded batches, because APOC is not there"
            log.info("cleanup of old jobs runs %s", how)
        return self._apoc

    async def _look(self, queues: Sequence[str]) -> tuple[bool, int | None]:
        ready, due = await self._ask("work", {"queues": list(queues)})
        return ready, due

    async def _keep_up(self) -> None:
        if time.monotonic() - self._kept_up < UPKEEP:
            return
        self._kept_up = time.monotonic()
        await fill(self._opened(), (Status.PENDING, Status.PROCESSING))
        await self._opened().ask("fold", {"many": MANY_PIECES})

    async def _meet(self, queues: Mapping[str, Share]) -> None:
        """Let queues have a node, which leases and pauses lock."""
        if unmet := sorted(queues.keys() - self._met.keys()):
            await self._ask("meet", {"queues": unmet})
            self._met |= dict.fromkeys(unmet, time.monotonic())

    def _forget(self, queues: Mapping[str, Share]) -> None:
        """Somebody may have wiped the database: without its node a queue would seem to be empty for ever."""
        long_ago = time.monotonic() - MEET_AGAIN
        self._met = {name: met for name, met in self._met.items() if name not in queues or met > long_ago}

    async def _readable(self, read: rows.Read) -> list[Job]:
        """The jobs that can be read; the others are put aside, so that they hold up nobody."""
        for node, why in read.unreadable:
            facts = rows.failure(UNREADABLE) | rows.kept(node) | {"details": json_text({"why": why})}
            await self._ask("quarantine", facts | {"address": node.get("id")})
        return read.jobs

    async def _ask(self, name: str, params: rows.Params) -> Any:
        """For what is as good if it is done twice."""
        return await self._opened().ask(name, params, safe=True)

    def _opened(self) -> Lines:
        if self._lines is None:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        return self._lines
