"""A trial of worker processes that fire schedules made at run time, the same on every store."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from support.processes import Child
from support.waiting import until_async
from support.workers import Workers
from unstuck import Filter, Jobs
from unstuck.protocol.ids import slot_of
from unstuck.protocol.job import Job

SECOND = timedelta(seconds=1)


async def scheduled(workers: Workers) -> None:
    """Each slot comes once and none is lost, whoever is killed; each change holds for all slots after it."""
    jobs = Jobs(workers.store)
    # Two that run the jobs, and two that fire schedules only, of whom one dies.
    started = [
        workers.start("--processes", "0", "--queue", queue) for queue in ("long", "long", "short", "short")
    ]
    for one in started:
        await one.until_line_async("takes", 60)
    log = started[0]

    for name in ("s", "control"):
        await jobs.add_schedule(name, "step", {"gate": ""}, every=1, catch_up="all", queue="long")
    await _slots(workers, "s", 3, log)
    started[3].kill()
    await _slots(workers, "s", 6, log)

    await jobs.change_schedule("s", arguments={"seconds": 0.001}, priority=4)
    changed = await jobs.now()
    await _gone_by(workers, changed + 2 * SECOND, "s", log)

    before = await jobs.now()
    await jobs.pause_schedule("s")
    paused = await jobs.now()
    await _gone_by(workers, paused + 3 * SECOND, "control", log)
    assert max(_slot(job) for job in await _fired(workers, "s")) <= paused
    resumed = await jobs.now()
    await jobs.resume_schedule("s")
    await _gone_by(workers, resumed + 2 * SECOND, "s", log)
    assert before < resumed - 2 * SECOND, "no slot came during the pause"

    await jobs.delete_schedule("s")
    deleted = await jobs.now()
    await _gone_by(workers, deleted + 3 * SECOND, "control", log)
    await jobs.delete_schedule("control")

    await workers.finished(60, log)
    found = await _fired(workers, "s")
    slots = [_slot(job) for job in found]
    assert slots == [slots[0] + n * SECOND for n in range(len(slots))], "a slot was lost, or came twice"
    assert slots[-1] <= deleted
    for job in found:
        after = _slot(job) > changed
        assert not after or (job.payload["seconds"], job.priority) == (0.001, 4)
    runs = {job.id: len({run.fence for run in workers.ledger.runs() if run.job == job.id}) for job in found}
    assert set(runs.values()) == {1}, "a slot was fired for again"


async def _fired(workers: Workers, name: str) -> list[Job]:
    """The jobs of a schedule, in the order of their slots."""
    found = (await workers.store.find(Filter(), 1000)).jobs
    return sorted((job for job in found if (job.key or "").startswith(f"schedule:{name}:")), key=_slot)


def _slot(job: Job) -> datetime:
    slot = slot_of(job.key)
    assert slot is not None
    return slot


async def _slots(workers: Workers, name: str, count: int, log: Child) -> Sequence[Job]:
    async def enough() -> list[Job] | None:
        found = await _fired(workers, name)
        return found if len(found) >= count else None

    return await until_async(enough, 60, f"{count} slots of {name}", log.log)


async def _gone_by(workers: Workers, when: datetime, name: str, log: Child) -> None:
    """Until a schedule has fired for a slot that is not earlier than this."""

    async def there() -> bool:
        await asyncio.sleep(0.1)
        found = await _fired(workers, name)
        return bool(found) and _slot(found[-1]) >= when

    await until_async(there, 60, f"{name} to fire for a slot from {when:%H:%M:%S}", log.log)
