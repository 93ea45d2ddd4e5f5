"""SpreadStore: a Redis Cluster in which each queue has a slot of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from unstuck.errors import StoreError
from unstuck.model import Beat, Event, Filter, Job, NewJob, Outcome, Ref, Settled, Worker
from unstuck.store import GRACE, Blind, Counts, Enqueued, Page, Pulse, Reclaimed, Share
from unstuck.stores import listing
from unstuck.stores.redis import bell, operate, rows
from unstuck.stores.redis.place import Place
from unstuck.stores.redis.store import RedisStore, recorded
from unstuck.stores.telling import MOST_BROKEN
from unstuck.stores.values import instant, milliseconds

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
log = logging.getLogger("unstuck.redis")

AT_ONCE = 8  # steps that are under way at a time
DELIVERED = 100  # jobs that are taken from an outbox together

_encode = msgspec.json.Encoder().encode
_new_job = msgspec.json.Decoder(NewJob).decode


class SpreadStore(RedisStore):
    """What is about several queues is one step for each of them, of the server that has it.

    Jobs that a step has for other queues are left in an outbox beside its own, and brought to their queues behind it,
    or by the next look of a reaper if whoever should have done so died.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._known: set[str] = set()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        for job in jobs:
            self._place.check(job.queue, job.id)
        enqueue, of = super().enqueue, _by_queue(jobs, lambda job: job.queue)
        await self._register(of)
        answers = await _each(of, lambda _, some: enqueue(some))
        left = {queue: iter(some) for queue, some in answers.items()}
        return [next(left[job.queue]) for job in jobs]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """The best ranks of all queues, as they were a moment ago: in between somebody may have been quicker."""
        await self._register(queues)
        if len(queues) < 2 or limit < 1:
            return await super().lease(queues, limit, owner)
        take, trouble = super().lease, list[StoreError]()

        async def ranks(queue: str, share: Share) -> list[int]:
            shares = [[milliseconds(share.seconds), share.limit, share.at_a_time, share.per_lane]]
            return [
                int(rank) for rank in await self._run("lease", [queue], shares=shares, limit=limit, look=True)
            ]

        heads = await _each(queues, ranks, trouble)
        best = sorted((rank, queue) for queue, some in heads.items() for rank in some)[:limit]
        wanted = Counter(queue for _, queue in best)
        taken = await _each(wanted, lambda queue, most: take({queue: queues[queue]}, most, owner), trouble)
        jobs = [job for some in taken.values() for job in some]
        if trouble and not jobs:
            raise trouble[0]
        return jobs

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        """Leases whose server does not answer have no verdict."""
        trouble: list[StoreError] = []
        of = {key: list[Beat]() for key in worker.queues} | _by_queue(beats, lambda beat: beat.lease.queue)
        pulses = await _each(of, lambda queue, some: self._beat(worker, [queue], some), trouble)
        try:
            self._known.clear()  # a failover may have lost what was registered
            await self._register(worker.queues)
            await self._beat(worker, (), (), **recorded(worker))
        except StoreError as error:
            trouble.append(error)
        verdicts = {lease: verdict for pulse in pulses.values() for lease, verdict in pulse.verdicts.items()}
        if trouble and not verdicts:
            raise trouble[0]
        return Pulse(verdicts, [lease for pulse in pulses.values() for lease in pulse.strangers])

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        of = _by_queue(outcomes, lambda outcome: outcome.lease.queue)
        answers = await _each(of, self._settle_one)
        left = {queue: iter(some) for queue, some in answers.items()}
        return [next(left[outcome.lease.queue]) for outcome in outcomes]

    async def _settle_one(self, queue: str, outcomes: Sequence[Outcome]) -> list[Settled]:
        abroad = [[job for job in outcome.then if job.queue != queue] for outcome in outcomes]
        if not any(abroad):
            return await self._settle(outcomes)
        at_home = [
            msgspec.structs.replace(outcome, then=tuple(job for job in outcome.then if job.queue == queue))
            for outcome in outcomes
        ]
        answers = await self._settle(at_home, abroad=[self._texts(jobs) for jobs in abroad])
        await self._deliver_soon(queue)
        return answers

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
        # If one cannot be reached nothing is taken of the others, so that the reaper knows that it was blind.
        await _each(dict.fromkeys([None, *names]), lambda queue, _: self._deliver(queue))
        jobs: list[Job] = []
        adopted, ends = 0, list[float]()
        for name in names:
            most = limit - len(jobs)
            some = await super().reclaim([name], seconds, most, owner, of=of, blind=blind, grace=grace)
            jobs += some.jobs
            adopted += some.adopted
            ends += [] if some.next_end is None else [some.next_end]
        return Reclaimed(jobs, adopted, min(ends, default=None))

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        facts = {"schedule": schedule, "slot": instant(slot), "jobs": [], "abroad": self._texts(jobs)}
        fired = bool(await self._opened().run_safely("tick", (), routine=self._place.all_events, **facts))
        if fired and jobs:
            await self._deliver_soon(None)
        return fired

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if len(queues) < 2:
            await super().wait(queues, timeout)
            return
        waits = [asyncio.ensure_future(bell.wait(self._opened(), [queue], timeout)) for queue in queues]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        """Jobs of different queues may have the same place in the listing: a page has all of its last one."""
        if which.ids == () or limit < 1:
            return Page([], None)
        if cursor is not None:
            listing.place(cursor, which)  # refused also where there is no queue to ask
        lines = self._opened()
        names = dict.fromkeys(await operate.queues(lines, which))
        answers = await _each(names, lambda name, _: operate.find(lines, [name], which, limit, cursor))
        found = sorted((one for some in answers.values() for one in some), key=_place, reverse=True)
        return operate.page(_cut(found, limit, _place), which, limit)

    async def count(self) -> list[Counts]:
        lines = self._opened()
        names = dict.fromkeys(await lines.queues())
        answers = await _each(names, lambda name, _: operate.count(lines, [name]))
        return [counts for some in answers.values() for counts in some]

    async def verify(self) -> list[str]:
        lines = self._opened()
        names = dict.fromkeys(await lines.queues())
        answers = await _each(names, lambda name, _: operate.verify(lines, [name]))
        return [line for some in answers.values() for line in some][:MOST_BROKEN]

    async def cancel(self, refs: Sequence[Ref]) -> int:
        cancel, of = super().cancel, _by_queue(refs, lambda ref: ref.queue)
        return sum((await _each(of, lambda _, some: cancel(some))).values())

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        edit, of = super().edit, _by_queue(refs, lambda ref: ref.queue)
        return sum((await _each(of, lambda _, some: edit(some, priority=priority, run_at=run_at))).values())

    async def pause(self, queue: str, why: str) -> None:
        await self._register([queue])
        await super().pause(queue, why)

    async def _events(self, behind: int, limit: int) -> list[Event]:
        """Up to the moment at which the first of the queues was read: a later event of it would be passed by."""
        names = dict.fromkeys(await self._opened().queues())
        answers = (await _each(names, lambda name, _: self._told(name, behind, limit))).values()
        horizon = min((until for _, until in answers), default=0)
        told = [event for some, _ in answers for event in some if int(event.cursor) <= horizon]
        return _cut(sorted(told, key=_number), limit, _number)

    async def _told(self, queue: str, behind: int, limit: int) -> tuple[list[Event], int]:
        """Events of a queue, and a number that all of its later ones will be beyond."""
        own, of = self._place.own, self._place.of
        texts, last, (seconds, micro) = await self._opened().together(
            [
                ["ZRANGEBYSCORE", of(queue, "unstuck:events"), f"({behind}", "+inf", "LIMIT", 0, limit],
                ["GET", own("number", queue)],
                ["TIME"],
            ],
            queue,
        )
        clock = int(seconds) * 1_000_000 + int(micro)
        return [rows.event(queue, text) for text in texts], max(int(last or 0), clock - 1)

    async def _finished(self, step: str, which: Filter, limit: int) -> int:
        count, lines = 0, self._opened()
        for name in await operate.queues(lines, which):
            if count < limit:
                count += await operate.finished(lines, [name], step, which, limit - count)
        return count

    async def _register(self, queues: Iterable[str]) -> None:
        """Enter queues into the register of all."""
        if new := {*queues} - self._known:
            await self._opened().ask("SADD", self._place.own("queues"), *new)
            self._known |= new

    def _texts(self, jobs: Iterable[NewJob]) -> list[str]:
        """Jobs as they are kept in an outbox."""
        for job in jobs:
            self._place.check(job.queue, job.id)
        return [_encode(job).decode() for job in jobs]

    async def _deliver(self, queue: str | None) -> None:
        """Bring jobs to their queues that a step of this queue, or of a schedule, had for them. Twice does no harm."""
        lines, outbox = self._opened(), self._place.own("outbox", queue)
        while texts := await lines.ask("LRANGE", outbox, 0, DELIVERED - 1):
            await self.enqueue([_new_job(text) for text in texts])
            for text in texts:
                await lines.ask("LREM", outbox, 1, text)

    async def _deliver_soon(self, queue: str | None) -> None:
        try:
            await self._deliver(queue)
        except StoreError as error:
            log.warning("jobs of queue %s for others wait for the next recovery: %s", queue, error)


async def _each(
    asked: Mapping[K, V], call: Callable[[K, V], Awaitable[T]], trouble: list[StoreError] | None = None
) -> dict[K, T]:
    """What a step says about each queue. One that fails is an error, or left out where there is a list for it."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(key: K, value: V) -> T:
        async with free:
            return await call(key, value)

    answers = await asyncio.gather(*(one(*item) for item in asked.items()), return_exceptions=True)
    found: dict[K, T] = {}
    for key, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreError) and trouble is not None:
            trouble.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[key] = answer
    return found


def _by_queue(things: Iterable[V], queue: Callable[[V], str]) -> dict[str, list[V]]:
    found: dict[str, list[V]] = {}
    for one in things:
        found.setdefault(queue(one), []).append(one)
    return found


def _cut(things: list[V], limit: int, place: Callable[[V], Any]) -> list[V]:
    """The first ones, and those that are in the same place as the last of them."""
    end = limit
    while 0 < end < len(things) and place(things[end]) == place(things[limit - 1]):
        end += 1
    return things[:end]


def _place(found: operate.Found) -> tuple[int, ...]:
    return found[1]


def _number(event: Event) -> int:
    return int(event.cursor)
