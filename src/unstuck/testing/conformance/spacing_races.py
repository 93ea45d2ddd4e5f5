"""Spacing: many callers of one key at the same moment, and a worker that takes the job meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed
from unstuck.testing.conformance.given import QUEUE, leased, states
from unstuck.testing.conformance.spacing import all_jobs
from unstuck.testing.harnesses.harness import Harness

PROCESSES = 16
_CALLER = """
import asyncio, json, sys
from unstuck import open_store
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import NewJob

KINDS = {"last": {"debounce": 600.0, "delay": 600.0}, "first": {"throttle": 600.0}}

async def main(url, number):
    async with open_store(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for call in range(5):
            jobs = [
                NewJob(queue="q", task="task", id=new_id(), key=key, payload=[number, call], digest=f"{number} {call}", **kind)
                for key, kind in KINDS.items()
            ]
            for job in jobs:
                [answer] = await store.enqueue([job])
                print(json.dumps([job.key, answer.id, answer.created]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.timeout(300)
async def test_processes_that_space_out_one_key_at_once_make_one_job(harness: Harness) -> None:
    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - started together, read below
            [sys.executable, "-c", _CALLER, harness.url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for each in processes:
        assert each.stdout is not None
        assert await asyncio.to_thread(each.stdout.readline) == "ready\n", (
            "open_store(harness.url) must work anywhere"
        )
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    outputs = [await asyncio.to_thread(each.communicate) for each in processes]

    assert [each.returncode for each in processes] == [0] * PROCESSES
    answers = [json.loads(line) for output, _ in outputs for line in output.splitlines()]
    assert len(answers) == 5 * 2 * PROCESSES
    jobs = {job.key: job for job in await all_jobs(harness.store)}
    assert await states(harness.store) == {"pending": 2}
    for key, job in jobs.items():
        of_key = [(id_, created) for name, id_, created in answers if name == key]
        assert {id_ for id_, _ in of_key} == {job.id}
        assert sum(created for _, created in of_key) == 1, f"{key}: not one of them has made the job"
    assert jobs["last"].payload[1] == 4, "no process's last call came last"
    assert jobs["first"].payload[1] == 0, "no process's first call came first"


_TYPIST = """
import asyncio, select, sys
from unstuck import open_store
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import NewJob

async def main(url):
    async with open_store(url) as store:
        made = calls = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            facts = {"key": "k", "payload": calls, "digest": str(calls), "debounce": 600.0, "delay": 600.0}
            [answer] = await store.enqueue([NewJob(queue="q", task="task", id=new_id(), **facts)])
            calls, made = calls + 1, made + answer.created
        print(calls - 1, made)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.timeout(300)
async def test_the_last_payload_runs_although_a_worker_leases_the_job_at_that_moment(
    harness: Harness,
) -> None:
    """A process sends one payload after the other, while a worker takes the job as if its interval were over."""
    ran: list[int] = []

    async def work() -> bool:
        waiting = (await harness.store.find(Filter(queue=QUEUE, status=Status.PENDING))).jobs
        if waiting:
            await harness.store.edit([job.ref for job in waiting], run_at=waiting[0].created_at)
        for job in await leased(harness.store, 5):
            ran.append(job.payload)
            await harness.store.settle([completed(job.lease)])
        return bool(waiting)

    with subprocess.Popen(  # noqa: ASYNC220 - it works beside this loop
        [sys.executable, "-c", _TYPIST, harness.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as caller:
        while len(ran) < 10 and caller.poll() is None:
            await work()
        output, _ = await asyncio.to_thread(caller.communicate, "stop\n")
    while await work():
        pass

    assert caller.returncode == 0
    last, made = map(int, output.split())
    assert ran[-1] == last, "the last payload was lost"
    assert ran == sorted(set(ran))
    assert len(ran) == made
