"""Expiry among processes: workers and reapers that want the same jobs, and a reaper that is killed in the middle."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta

from unstuck.protocol.job import EXPIRED
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import counts, enqueued, look, now, states
from unstuck.testing.conformance.on_failure import FOLLOW_UP
from unstuck.testing.harnesses.harness import Harness

_TAKER = """
import asyncio, json, sys
from unstuck import open_store
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed
from unstuck.recovery.reaper import Reaper

async def work(store):
    jobs = await store.lease({"q": Share(60.0, 2)}, 2, "w")
    for job in jobs:
        assert job.started_at < job.expires_at, f"started at {job.started_at}, expired at {job.expires_at}"
    await store.settle([completed(job.lease) for job in jobs])
    return [job.id for job in jobs]

async def reap(store):
    return [outcome.lease.id for outcome in await Reaper(store).recover()]

async def main(url, what):
    async with open_store(url) as store:
        taken = []
        while any(of.pending or of.processing for of in await store.count() if of.queue == "q"):
            taken += await {"work": work, "reap": reap}[what](store)
        print(json.dumps(taken))

asyncio.run(main(*sys.argv[1:]))
"""

_DYING_REAPER = """
import asyncio, sys
from unstuck import open_store
from unstuck.protocol.leases import Recovery

async def main(url):
    async with open_store(url) as store:
        taken = await store.reclaim(Recovery("dying", 1.0, 10))
        print(len(taken.jobs), flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_start_each_job_in_time_or_fail_it_and_never_both(harness: Harness) -> None:
    refs = [
        (await enqueued(harness.store, expires=now() + timedelta(milliseconds=number * 10)))[0]
        for number in range(200)
    ]

    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - started together, read below
            [sys.executable, "-c", _TAKER, harness.url, what], stdout=subprocess.PIPE, text=True
        )
        for what in ("work", "reap", "work", "reap")
    ]
    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    one, two, three, four = (json.loads(output) for output in outputs)
    assert sorted(one + two + three + four) == sorted(ref.id for ref in refs)
    of = await counts(harness.store)
    assert (of.completed, of.cancelled) == (len(one + three), len(two + four))
    assert of.totals.get(EXPIRED, 0) == len(two + four)


async def test_a_reaper_that_is_killed_before_it_fails_a_job_leaves_it_to_the_next(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, expires=0.001, on_failure=FOLLOW_UP)
    process = subprocess.Popen(  # noqa: ASYNC220 - read in a thread
        [sys.executable, "-c", _DYING_REAPER, harness.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "1\n"
        assert await states(harness.store, "reports") == {}
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)

    reaper = Reaper(harness.store)
    async with asyncio.timeout(120):
        while not (await look(harness.store, ref)).expired:  # once the lease of the dead one has run out
            await reaper.recover()
            await asyncio.sleep(0.05)
    await reaper.recover()

    assert [event.type for event in await harness.store.events(job=ref)] == [EXPIRED]
    assert (await counts(harness.store)).totals[EXPIRED] == 1
    assert await states(harness.store, "reports") == {"pending": 1}
