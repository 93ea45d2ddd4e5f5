"""RedisStore: the Store protocol on a Redis or Valkey server."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from unstuck.protocol.availability import Clock
from unstuck.protocol.errors import ConfigError, StoreUnavailable
from unstuck.protocol.fleet import Fleet, WorkerInfo
from unstuck.protocol.foreign import Children
from unstuck.protocol.job import Enqueued, Job, Json, Lease, NewJob, Ref
from unstuck.protocol.leases import ANSWER, Beat, HeartbeatAnswer, Reclaimed, Recovery, Share, Verdict
from unstuck.protocol.limits import Grant, latest
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled, failed
from unstuck.protocol.records import PAGE, Kept, Record
from unstuck.stores.redis import children, iterations, leasing, operate, rows, wakeup
from unstuck.stores.redis.address import RedisAddress
from unstuck.stores.redis.checkup import checkup, read_infos
from unstuck.stores.redis.client import Queues, RedisClient
from unstuck.stores.redis.stranded import stranded
from unstuck.stores.shared import keeping
from unstuck.stores.shared.events import REMEMBER_WORKERS, UNREADABLE, outcome_events, reaped
from unstuck.stores.shared.listing import behind
from unstuck.stores.shared.values import at, instant, json_text, milliseconds, worker_text

log = logging.getLogger("unstuck.redis")

NONE: Mapping[str, int] = {}


class RedisStore:
    """Every operation is one script, which the server runs atomically."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._client: RedisClient | None = None

    async def __aenter__(self) -> Self:
        self._client = RedisClient(self._address)
        try:
            await self._client.ask_server("PING")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def twin(self) -> RedisStore:
        return type(self)(self._address)

    async def migrate(self) -> None:
        """Redis has no schema, but a server that loses jobs is refused here, unless the URL has careless=yes."""
        for finding in await checkup(self._opened()):
            if finding.level == "failure" and not self._address.careless:
                raise ConfigError(
                    f"the server is not safe for jobs: {finding.what}. {finding.fix}; or, if jobs may be lost, "
                    "add careless=yes to the store's URL"
                )
            if finding.level != "ok":
                log.warning("%s (%s)", finding.what, finding.fix)

    async def clock(self) -> Clock:
        infos = await read_infos(self._opened())
        seconds, micro = await self._opened().ask_server("TIME")
        now = at(int(seconds) * 1000 + int(micro) / 1000)
        return Clock(now, max(0.001, min(float(info.get("uptime_in_seconds", "0")) for info in infos)))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        queues = Queues()
        facts = {"jobs": self._new(jobs, queues), "routine": self._address.all_events}
        answers = await self._opened().run_safely("enqueue", queues, **facts)
        return [
            Enqueued(
                job.queue, other[0].decode() if other else job.id, created=bool(created), same=bool(same)
            )
            for job, (created, same, *other) in zip(jobs, answers, strict=True)
        ]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        return await leasing.in_parts(self._lease, queues, limit, owner)

    async def _lease(
        self,
        queues: Mapping[str, Share],
        limit: int,
        owner: str,
        most: int,
        slots: Mapping[str, int] = NONE,
    ) -> list[Job]:
        """Take jobs until their payloads amount to ``most`` bytes.

        A script leaves a scheduler's job whose next slot it cannot compute; a second step, given the slot, takes it.
        """
        if not queues or limit < 1:
            return []
        facts = leasing.facts(queues.values(), limit) | {"owner": owner, "bytes": most}
        taken, unknown = await self._run(
            "lease", queues, **facts, routine=self._address.all_events, slots=dict(slots)
        )
        names = list(queues)
        jobs = await self._readable([(names[row[0] - 1], row, None) for row in taken])
        if not unknown:
            return jobs
        left = Counter(names[row[0] - 1] for row in unknown)
        shares_left = {name: queues[name]._replace(limit=count) for name, count in left.items()}
        more = self._lease(shares_left, len(unknown), owner, most, iterations.slots(unknown))
        return await leasing.with_more(jobs, more)

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        return await self._beat(worker, worker.queues, beats, **recorded(worker))

    async def _beat(
        self, worker: WorkerInfo, of: Iterable[str], beats: Sequence[Beat], **ask: Any
    ) -> HeartbeatAnswer:
        queues = Queues()
        renewals = [rows.beat(beat, queues[beat.lease.queue]) for beat in beats]
        queues |= {queue: queues[queue] for queue in of}
        verdicts, strangers = await self._run("heartbeat", queues, worker=worker.id, beats=renewals, **ask)
        names = list(queues)
        return HeartbeatAnswer(
            {beat.lease: Verdict(word.decode()) for beat, word in zip(beats, verdicts, strict=True)},
            [Lease(names[position - 1], id_.decode(), int(fence)) for position, id_, fence in strangers],
        )

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return await self._settle(outcomes) if outcomes else []

    async def _settle(self, outcomes: Sequence[Outcome], **ask: Any) -> list[Settled]:
        queues = Queues()
        all_events = self._address.all_events
        answers = await self._run(
            "settle",
            queues,
            outcomes=[rows.outcome(outcome, queues[outcome.lease.queue]) for outcome in outcomes],
            events=[
                [n + 1, type_, json_text(details)]
                for n, type_, details in outcome_events(outcomes, all_events)
            ],
            counts=[[n + 1, name] for n, outcome in enumerate(outcomes) if (name := reaped(outcome))],
            follow=[self._new(outcome.then, queues) for outcome in outcomes],
            routine=all_events,
            **ask,
        )
        return [Settled(answer.decode()) for answer in answers]

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        names = await self._opened().queues() if recovery.queues is None else list(recovery.queues)
        taken, adopted, end = await self._run(
            "reclaim", names, **rows.recovery(recovery), bytes=ANSWER, routine=self._address.all_events
        )
        await iterations.ensure(self._opened(), (Ref(names[row[0] - 1], row[1].decode()) for row, _ in taken))
        jobs = await self._readable([(names[row[0] - 1], row, int(fence)) for row, fence in taken])
        return Reclaimed(jobs, adopted, None if end is None else int(end) / 1000)

    async def take(self, bucket: str, wanted: int = 0, capacity: int = 0, interval: float = 0.0) -> Grant:
        facts = {"wanted": wanted, "capacity": capacity, "interval": milliseconds(interval)}
        facts["latest"] = milliseconds(latest(interval))
        granted, stamp, out, first_back, closed_for = await self._run("take", (), bucket=bucket, **facts)
        return Grant(granted, int(stamp), out, int(first_back) / 1000, int(closed_for) / 1000)

    async def give_back(self, bucket: str, count: int = 0, stamp: int = 0, *, close_for: float = 0.0) -> None:
        if count > 0 or close_for > 0:
            facts = {"count": count, "stamp": stamp, "close_for": milliseconds(close_for)}
            await self._run("give_back", (), bucket=bucket, **facts)

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        queues = Queues()
        ahead = None if instead_of is None else instant(instead_of)
        facts = {
            "schedule": schedule,
            "slot": None if slot is None else instant(slot),
            "instead_of": ahead,
            "jobs": self._new(jobs, queues),
        }
        return bool(
            await self._opened().run_safely("tick", queues, routine=self._address.all_events, **facts)
        )

    async def keep(self, kind: str, name: str, value: Json, version: int = 0) -> Kept:
        change = keeping.change(kind, name, value, version)
        found = await self._run("keep", (), **change.params)
        return keeping.answer(change, None if found is None else rows.kept(found))

    async def kept(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        keeping.check_listing(kind, after)
        if limit < 1:
            return []
        found = await self._run("kept", (), kind=kind, after=after, limit=min(limit, PAGE))
        return [keeping.record(kind, name.decode(), *rows.kept(text)) for name, text in found]

    async def forget(self, kind: str, older_than: float, limit: int = 1000) -> int:
        keeping.check_age(kind, older_than)
        if limit < 1:
            return 0
        return int(await self._run("forget", (), kind=kind, age=milliseconds(older_than), limit=limit))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if not queues:
            await asyncio.sleep(timeout)
        else:
            await wakeup.wait(self._opened(), queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        client = self._opened()
        found = await operate.find(client, await operate.queues(client, which), which, limit, cursor)
        return operate.page(found, which, limit)

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        return await operate.count(self._opened(), await self._opened().queues(), ahead_of)

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        rules = await self._broken_rules() if deep else []
        return [*await checkup(self._opened()), *await stranded(self._opened()), *rules]

    async def _broken_rules(self) -> list[Finding]:
        return await operate.broken_rules(self._opened(), await self._opened().queues())

    async def fleet(self) -> Fleet:
        return await operate.fleet(self._opened())

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        if job is not None:
            return await operate.job_events(self._opened(), job, behind(after), limit)
        return await self._events(behind(after), limit)

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        return await self._finished("requeue", which, limit)

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        return await self._finished("delete", which, limit)

    async def cancel(self, refs: Sequence[Ref]) -> int:
        return await operate.cancel(self._opened(), refs) if refs else 0

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        if not refs or (priority is None and run_at is None):
            return 0
        return await operate.edit(self._opened(), refs, priority, run_at)

    async def children(self, ref: Ref) -> Children | None:
        return await children.awaited(self._opened(), ref)

    async def pause(self, queue: str, why: str | None) -> bool:
        if why is None:
            return bool(await self._run("resume", [queue]))
        await self._run("pause", [queue], why=why)
        return True

    async def _events(self, behind: int, limit: int) -> list[Event]:
        return await operate.events(self._opened(), await self._opened().queues(), behind, limit)

    async def _finished(self, step: str, which: Filter, limit: int) -> int:
        client = self._opened()
        return await operate.finished(client, await operate.queues(client, which), step, which, limit)

    async def _readable(self, found: Iterable[tuple[str, rows.Row, int | None]]) -> list[Job]:
        """The jobs that can be read, with their new fences; the others are set aside, so that they do not block the queue."""
        jobs, aside = [], []
        for queue, row, fence in found:
            try:
                job = rows.job(queue, row)
                jobs.append(job if fence is None else msgspec.structs.replace(job, fence=fence))
            except rows.UNREADABLE_BY as error:
                held = fence if fence is not None else int(rows.hashed(row)[b"fence"])
                failure = msgspec.structs.replace(UNREADABLE, details={"why": str(error)[:200]})
                aside.append(failed(Lease(queue, row[1].decode(), held), failure, event="quarantined"))
        await self.settle(aside)
        return jobs

    async def _run(self, name: str, queues: Iterable[str] = (), **ask: Any) -> Any:
        return await self._opened().run(name, queues, **ask)

    def _opened(self) -> RedisClient:
        if self._client is None:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        return self._client

    def _new(self, jobs: Iterable[NewJob], queues: Queues) -> list[list[Any]]:
        for job in jobs:
            self._address.check(job.queue, job.id)
        return [rows.new_job(job, queues[job.queue]) for job in jobs]


def recorded(worker: WorkerInfo) -> dict[str, Any]:
    """What heartbeat.lua records of a worker, and for how long."""
    return {"facts": worker_text(worker), "remember": milliseconds(REMEMBER_WORKERS)}
