"""Sixteen processes on one file: nobody is told "database is locked", and the sums are right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]

PROCESSES = 16
SECONDS = 30.0

_CLIENT = """
import asyncio, json, sys, time
from unstuck import open_store
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.outcome import completed
from unstuck.protocol.leases import Beat, Recovery, Share
from unstuck.testing.conformance.given import new

async def main(url, owner, seconds):
    done = {"enqueued": 0, "leased": 0, "applied": 0, "slowest": 0.0, "errors": []}
    end = time.monotonic() + float(seconds)
    async with open_store(url) as store:
        await store.migrate()
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                done["enqueued"] += len(await store.enqueue([new() for _ in range(3)]))
                jobs = await store.lease({"q": Share(60.0, 3)}, 3, owner)
                done["leased"] += len(jobs)
                await store.heartbeat(WorkerInfo(id=owner), [Beat(job.lease, 60.0) for job in jobs])
                await store.reclaim(Recovery(owner + "-reaper", 30.0, 10))
                answers = await store.settle([completed(job.lease) for job in jobs])
                done["applied"] += answers.count("applied")
                await store.count()
            except Exception as error:
                done["errors"].append(repr(error))
            done["slowest"] = max(done["slowest"], time.monotonic() - began)
    print(json.dumps(done))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.timeout(180)
async def test_no_caller_ever_meets_a_locked_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"  # not there yet: all sixteen create and migrate it at once
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CLIENT, url, f"p{number}", str(SECONDS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    told = [json.loads(child.communicate(timeout=150)[0]) for child in children]

    assert [error for one in told for error in one["errors"]] == []
    assert all(one["enqueued"] > 0 for one in told), "a process never got its turn"
    totals = {name: sum(one[name] for one in told) for name in ("enqueued", "leased", "applied")}
    assert totals["leased"] == totals["applied"]
    async with SQLiteHarness(tmp_path) as harness:
        [counts] = await harness.store.count()
        [(verdict,)] = harness.rows("PRAGMA integrity_check")
    assert counts.completed == totals["applied"]
    assert counts.pending == totals["enqueued"] - totals["leased"]
    assert (counts.processing, counts.failed) == (0, 0)
    assert verdict == "ok"
