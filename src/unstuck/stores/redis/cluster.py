"""SpreadStore: a Redis Cluster in which each queue has a slot of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from unstuck.background import end
from unstuck.protocol.errors import StoreError
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Enqueued, Job, NewJob, Ref
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Reclaimed, Recovery, Share
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.stores.redis import leasing, operate, rows, wakeup
from unstuck.stores.redis.address import RedisAddress
from unstuck.stores.redis.store import RedisStore, recorded
from unstuck.stores.shared import listing
from unstuck.stores.shared.events import MOST_BROKEN
from unstuck.stores.shared.values import instant

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
log = logging.getLogger("unstuck.redis")

AT_ONCE = 8  # steps that run concurrently
DELIVERED = 100  # jobs delivered from an outbox at a time

_encode = msgspec.json.Encoder().encode
_new_job = msgspec.json.Decoder(NewJob).decode


class SpreadStore(RedisStore):
    """An operation on several queues runs one step for each of them, on the server that has the queue.

    A step leaves jobs for other queues in an outbox beside its own queue. The process delivers them right after the step;
    if it dies first, the next recovery does.
    """

    def __init__(self, address: RedisAddress) -> None:
        super().__init__(address)
        self._known: set[str] = set()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        for job in jobs:
            self._address.check(job.queue, job.id)
        enqueue, of = super().enqueue, _by_queue(jobs, lambda job: job.queue)
        await self._register(of)
        answers = await _each(of, lambda _, some: enqueue(some))
        left = {queue: iter(some) for queue, some in answers.items()}
        return [next(left[job.queue]) for job in jobs]

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """Lease those whose turn it is of all queues, and then the best ranks, as they stood a moment ago: another worker may
        have taken some since."""
        await self._register(queues)
        if len(queues) < 2 or limit < 1:
            return await super().lease(queues, limit, owner)
        take, trouble = super().lease, list[StoreError]()

        async def ranks(queue: str, share: Share) -> list[int]:
            asked = await self._run("lease", [queue], **leasing.facts([share], limit), look=True)
            return [int(rank) for rank in asked]

        heads = await _each(queues, ranks, trouble)
        line = [
            (queues[queue].stands(number), rank, queue)
            for queue, some in heads.items()
            for number, rank in enumerate(some)
        ]
        wanted = Counter(queue for *_, queue in sorted(line)[:limit])
        taken = await _each(wanted, lambda queue, most: take({queue: queues[queue]}, most, owner), trouble)
        jobs = [job for some in taken.values() for job in some]
        if trouble and not jobs:
            raise trouble[0]
        return jobs

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        """Leases whose server does not answer have no verdict."""
        trouble: list[StoreError] = []
        of = {key: list[Beat]() for key in worker.queues} | _by_queue(beats, lambda beat: beat.lease.queue)
        pulses = await _each(of, lambda queue, some: self._beat(worker, [queue], some), trouble)
        try:
            self._known.clear()  # a failover may have lost registrations
            await self._register(worker.queues)
            await self._beat(worker, (), (), **recorded(worker))
        except StoreError as error:
            trouble.append(error)
        verdicts = {lease: verdict for pulse in pulses.values() for lease, verdict in pulse.verdicts.items()}
        if trouble and not verdicts:
            raise trouble[0]
        return HeartbeatAnswer(verdicts, [lease for pulse in pulses.values() for lease in pulse.strangers])

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

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        names = await self._opened().queues() if recovery.queues is None else list(recovery.queues)
        # If one server cannot be reached, nothing is taken over from the others, so that the reaper knows that it was blind.
        await _each(dict.fromkeys([None, *names]), lambda queue, _: self._deliver(queue))
        jobs: list[Job] = []
        adopted, ends = 0, list[float]()
        for name in names:
            of_one = msgspec.structs.replace(recovery, queues=[name], limit=recovery.limit - len(jobs))
            some = await super().reclaim(of_one)
            jobs += some.jobs
            adopted += some.adopted
            ends += [] if some.next_end is None else [some.next_end]
        return Reclaimed(jobs, adopted, min(ends, default=None))

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        ahead = None if instead_of is None else instant(instead_of)
        facts = {
            "schedule": schedule,
            "slot": None if slot is None else instant(slot),
            "instead_of": ahead,
            "jobs": [],
            "abroad": self._texts(jobs),
        }
        fired = bool(await self._opened().run_safely("tick", (), routine=self._address.all_events, **facts))
        if fired and jobs:
            await self._deliver_soon(None)
        return fired

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if len(queues) < 2:
            await super().wait(queues, timeout)
            return
        waits = [asyncio.ensure_future(wakeup.wait(self._opened(), [queue], timeout)) for queue in queues]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            await end(waits)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        """Jobs of different queues may share a position in the listing: a page includes all jobs at its last position."""
        if which.ids == () or limit < 1:
            return Page([], None)
        if cursor is not None:
            listing.cursor_numbers(
                cursor, which
            )  # refuses a wrong cursor even if there is no queue to search
        client = self._opened()
        names = dict.fromkeys(await operate.queues(client, which))
        answers = await _each(names, lambda name, _: operate.find(client, [name], which, limit, cursor))
        found = sorted((one for some in answers.values() for one in some), key=_position, reverse=True)
        return operate.page(_cut(found, limit, _position), which, limit)

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        client = self._opened()
        names = dict.fromkeys(await client.queues())
        answers = await _each(names, lambda name, _: operate.count(client, [name], ahead_of))
        return [counts for some in answers.values() for counts in some]

    async def _broken_rules(self) -> list[Finding]:
        client = self._opened()
        names = dict.fromkeys(await client.queues())
        answers = await _each(names, lambda name, _: operate.broken_rules(client, [name]))
        return [finding for some in answers.values() for finding in some][:MOST_BROKEN]

    async def cancel(self, refs: Sequence[Ref]) -> int:
        cancel, of = super().cancel, _by_queue(refs, lambda ref: ref.queue)
        return sum((await _each(of, lambda _, some: cancel(some))).values())

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        edit, of = super().edit, _by_queue(refs, lambda ref: ref.queue)
        return sum((await _each(of, lambda _, some: edit(some, priority=priority, run_at=run_at))).values())

    async def pause(self, queue: str, why: str | None) -> bool:
        if why is not None:
            await self._register([queue])
        return await super().pause(queue, why)

    async def _events(self, behind: int, limit: int) -> list[Event]:
        """Only events up to the moment at which the first queue was read, or later ones of that queue would be skipped."""
        names = dict.fromkeys(await self._opened().queues())
        answers = (await _each(names, lambda name, _: self._events_of(name, behind, limit))).values()
        horizon = min((until for _, until in answers), default=0)
        found = [event for some, _ in answers for event in some if int(event.cursor) <= horizon]
        return _cut(sorted(found, key=_number), limit, _number)

    async def _events_of(self, queue: str, behind: int, limit: int) -> tuple[list[Event], int]:
        """Events of a queue, and a number that all of its later events will exceed."""
        own, of = self._address.own, self._address.of
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
        count, client = 0, self._opened()
        for name in await operate.queues(client, which):
            if count < limit:
                count += await operate.finished(client, [name], step, which, limit - count)
        return count

    async def _register(self, queues: Iterable[str]) -> None:
        """Add queues to the register of the store's queues."""
        if new := {*queues} - self._known:
            await self._opened().ask("SADD", self._address.own("queues"), *new)
            self._known |= new

    def _texts(self, jobs: Iterable[NewJob]) -> list[str]:
        """Jobs as an outbox stores them."""
        for job in jobs:
            self._address.check(job.queue, job.id)
        return [_encode(job).decode() for job in jobs]

    async def _deliver(self, queue: str | None) -> None:
        """Enqueue the jobs in the outbox of this queue, or of the schedules. Doing so twice is harmless."""
        client, outbox = self._opened(), self._address.own("outbox", queue)
        while texts := await client.ask("LRANGE", outbox, 0, DELIVERED - 1):
            await self.enqueue([_new_job(text) for text in texts])
            for text in texts:
                await client.ask("LREM", outbox, 1, text)

    async def _deliver_soon(self, queue: str | None) -> None:
        try:
            await self._deliver(queue)
        except StoreError as error:
            log.warning(
                "jobs that queue %s has for other queues wait for the next recovery: %s", queue, error
            )


async def _each(
    asked: Mapping[K, V], call: Callable[[K, V], Awaitable[T]], trouble: list[StoreError] | None = None
) -> dict[K, T]:
    """The answers of a step for each queue. A failure is raised, or added to ``trouble`` where there is such a list."""
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


def _cut(things: list[V], limit: int, position: Callable[[V], Any]) -> list[V]:
    """The first ``limit`` ones, and those at the same position as the last of them."""
    end = limit
    while 0 < end < len(things) and position(things[end]) == position(things[limit - 1]):
        end += 1
    return things[:end]


def _position(found: operate.Found) -> tuple[int, ...]:
    return found[1]


def _number(event: Event) -> int:
    return int(event.cursor)
