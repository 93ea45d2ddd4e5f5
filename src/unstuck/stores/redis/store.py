"""RedisStore: the Store protocol on a Redis or Valkey server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from unstuck.errors import ConfigError, StoreUnavailable
from unstuck.model import (
    Beat,
    Event,
    Filter,
    Job,
    Lease,
    NewJob,
    Outcome,
    Ref,
    Settled,
    Verdict,
    Worker,
    failed,
)
from unstuck.store import GRACE, Blind, Clock, Counts, Enqueued, Finding, Page, Pulse, Reclaimed, Share
from unstuck.stores.listing import behind
from unstuck.stores.redis import bell, leasing, operate, rows
from unstuck.stores.redis.checkup import checkup, read_infos
from unstuck.stores.redis.lines import Lines, Queues
from unstuck.stores.redis.place import Place
from unstuck.stores.redis.stranded import stranded
from unstuck.stores.telling import COUNTED_PLACES, REMEMBER_WORKERS, UNREADABLE, reaped, told
from unstuck.stores.values import at, instant, json_text, milliseconds, worker_text
from unstuck.tokens import Bucket, Grant

log = logging.getLogger("unstuck.redis")


class RedisStore:
    """Every operation is one script, which the server carries out as one step."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lines: Lines | None = None

    async def __aenter__(self) -> Self:
        self._lines = Lines(self._place)
        try:
            await self._lines.ask_server("PING")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            await lines.close()

    def twin(self) -> RedisStore:
        return type(self)(self._place)

    async def migrate(self) -> None:
        """There is no schema; but a server that loses jobs is refused here, unless the URL says otherwise."""
        for finding in await checkup(self._opened()):
            if finding.level == "failure" and not self._place.careless:
                raise ConfigError(
                    f"the server is not fit for jobs: {finding.what}. {finding.fix}; or, if they may be lost, "
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
        facts = {"jobs": self._new(jobs, queues), "routine": self._place.all_events}
        answers = await self._opened().run_safely("enqueue", queues, **facts)
        return [
            Enqueued(job.queue, job.id, created=bool(created), same=bool(same))
            for job, (created, same) in zip(jobs, answers, strict=True)
        ]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        return await leasing.in_parts(self._lease, queues, limit, owner)

    async def _lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        shares = [
            [milliseconds(share.seconds), share.limit, share.at_a_time, share.per_lane]
            for share in queues.values()
        ]
        facts = {"shares": shares, "limit": limit, "owner": owner, "routine": self._place.all_events}
        taken = await self._run("lease", queues, **facts)
        names = list(queues)
        return await self._readable([(names[row[0] - 1], row, None) for row in taken])

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        return await self._beat(worker, worker.queues, beats, **recorded(worker))

    async def _beat(self, worker: Worker, of: Iterable[str], beats: Sequence[Beat], **ask: Any) -> Pulse:
        queues = Queues()
        said = [rows.beat(beat, queues[beat.lease.queue]) for beat in beats]
        queues |= {queue: queues[queue] for queue in of}
        verdicts, strangers = await self._run("heartbeat", queues, worker=worker.id, beats=said, **ask)
        names = list(queues)
        return Pulse(
            {beat.lease: Verdict(word.decode()) for beat, word in zip(beats, verdicts, strict=True)},
            [Lease(names[place - 1], id_.decode(), int(fence)) for place, id_, fence in strangers],
        )

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return await self._settle(outcomes) if outcomes else []

    async def _settle(self, outcomes: Sequence[Outcome], **ask: Any) -> list[Settled]:
        queues = Queues()
        all_events = self._place.all_events
        answers = await self._run(
            "settle",
            queues,
            outcomes=[rows.outcome(outcome, queues[outcome.lease.queue]) for outcome in outcomes],
            events=[[n + 1, type_, json_text(details)] for n, type_, details in told(outcomes, all_events)],
            counts=[[n + 1, name] for n, outcome in enumerate(outcomes) if (name := reaped(outcome))],
            follow=[self._new(outcome.then, queues) for outcome in outcomes],
            routine=all_events,
            **ask,
        )
        return [Settled(answer.decode()) for answer in answers]

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
        names = await self._opened().queues() if queues is None else list(queues)
        spans = [[milliseconds(span.since), milliseconds(span.until)] for span in blind]
        facts = {"owner": owner, "lease": milliseconds(seconds), "grace": milliseconds(grace), "blind": spans}
        taken, adopted, end = await self._run(
            "reclaim", names, limit=limit, of=of, routine=self._place.all_events, **facts
        )
        jobs = await self._readable([(names[row[0] - 1], row, int(fence)) for row, fence in taken])
        return Reclaimed(jobs, adopted, None if end is None else int(end) / 1000)

    async def take(self, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
        if wanted < 1:
            return Grant(0, 0.0)
        facts = {"wanted": wanted, "capacity": capacity, "interval": milliseconds(interval)}
        granted, wait, stamp = await self._run("take", (), bucket=bucket, **facts)
        return Grant(granted, int(wait) / 1000, int(stamp))

    async def give_back(self, bucket: str, count: int, stamp: int) -> None:
        if count > 0:
            await self._run("give_back", bucket=bucket, count=count, stamp=stamp)

    async def close(self, bucket: str, seconds: float) -> None:
        await self._run("close", bucket=bucket, closed_for=milliseconds(seconds))

    async def bucket(self, name: str) -> Bucket:
        out, first_back, closed_for = await self._run("bucket", bucket=name)
        return Bucket(out, int(first_back) / 1000, int(closed_for) / 1000)

    async def slot(self, schedule: str) -> datetime | None:
        found = await self._opened().ask("HGET", self._place.own("slots"), schedule)
        return None if found is None else at(found)

    async def slots(self) -> dict[str, datetime]:
        return await operate.slots(self._opened())

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        queues = Queues()
        facts = {"schedule": schedule, "slot": instant(slot), "jobs": self._new(jobs, queues)}
        return bool(await self._opened().run_safely("tick", queues, routine=self._place.all_events, **facts))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if not queues:
            await asyncio.sleep(timeout)
        else:
            await bell.wait(self._opened(), queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        lines = self._opened()
        found = await operate.find(lines, await operate.queues(lines, which), which, limit, cursor)
        return operate.page(found, which, limit)

    async def count(self) -> list[Counts]:
        return await operate.count(self._opened(), await self._opened().queues())

    async def checkup(self) -> list[Finding]:
        return [*await checkup(self._opened()), *await stranded(self._opened())]

    async def verify(self) -> list[str]:
        return await operate.verify(self._opened(), await self._opened().queues())

    async def workers(self) -> list[Worker]:
        return await operate.workers(self._opened())

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

    async def place(self, ref: Ref) -> int:
        return int(await self._run("place", [ref.queue], id=ref.id, bound=COUNTED_PLACES))

    async def pause(self, queue: str, why: str) -> None:
        await self._run("pause", [queue], why=why)

    async def resume(self, queue: str) -> bool:
        return bool(await self._run("resume", [queue]))

    async def _events(self, behind: int, limit: int) -> list[Event]:
        return await operate.events(self._opened(), await self._opened().queues(), behind, limit)

    async def _finished(self, step: str, which: Filter, limit: int) -> int:
        lines = self._opened()
        return await operate.finished(lines, await operate.queues(lines, which), step, which, limit)

    async def _readable(self, found: Iterable[tuple[str, rows.Row, int | None]]) -> list[Job]:
        """The jobs that can be read, with their new fences; the others are put aside, so that they hold up nobody."""
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

    def _opened(self) -> Lines:
        if self._lines is None:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        return self._lines

    def _new(self, jobs: Iterable[NewJob], queues: Queues) -> list[list[Any]]:
        for job in jobs:
            self._place.check(job.queue, job.id)
        return [rows.new_job(job, queues[job.queue]) for job in jobs]


def recorded(worker: Worker) -> dict[str, Any]:
    """What heartbeat.lua writes down of a worker, and for how long it is remembered."""
    return {"facts": worker_text(worker), "remember": milliseconds(REMEMBER_WORKERS)}
