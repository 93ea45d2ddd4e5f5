"""Plays the demo: starts workers, kills one, freezes another, and reads back what became of the jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from unstuck import Call, Counts, Filter, Jobs, Status
from unstuck.cli.demo import tasks
from unstuck.cli.demo.tasks import FOLDER, LEASE
from unstuck.stores.sqlite.lock import lasts

KINDS = {"quick": 1700, "slow": 120, "flaky": 80, "limited": 59, "bad": 40, "poison": 1}
JOBS = sum(KINDS.values())
LONGEST = 55.0  # seconds after which it gives up
FROZEN = LEASE + 2.0  # seconds that a worker stands still
MOMENT = 0.5  # seconds for which nobody else keeps the file's write lock
WAKING = 10.0  # seconds in which it must have been refused something after that
REFUSED = ("its outcome is refused", "the lease is lost")


class Deeds(Struct):
    """What was done to the workers, and when by the store's clock."""

    killed: str = ""
    killed_at: datetime | None = None
    frozen: str = ""
    gave_up: bool = False  # there was no time to see what becomes of all jobs


Show = Callable[[Sequence[Counts], str], None]


async def play(folder: Path, show: Show) -> Deeds:
    """Run the whole demo. ``show`` gets the counts, and a sentence when something was done."""
    async with Jobs.open(f"sqlite:///{folder / 'jobs.db'}", create=True) as jobs:
        await jobs.enqueue([call.job for call in _calls()])
        show(await jobs.counts(), f"enqueued {JOBS} jobs of {len(KINDS)} kinds")
        workers = await _start(folder)
        deeds = Deeds()
        try:
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(_watch(jobs, show), _interfere(jobs, folder, deeds, show))
        except TimeoutError:
            deeds.gave_up = True
            show(await jobs.counts(), f"gave up after {LONGEST:.0f} s")
        finally:
            await _stop(workers)
        show(await jobs.counts(), "stopped the workers")
        return deeds


def _calls() -> list[Call[Any]]:
    """The poison first, then all kinds mixed, always in the same way."""
    calls = [
        tasks.app.tasks[kind].call(number)
        for kind, count in KINDS.items()
        if kind != "poison"
        for number in range(count)
    ]
    random.Random(7).shuffle(calls)  # noqa: S311 - not a secret
    return [tasks.poison.call(), *calls]


async def _start(folder: Path) -> asyncio.subprocess.Process:
    argv = [sys.executable, "-m", "unstuck", "worker", "unstuck.cli.demo.tasks:app", "--processes", "3"]
    with (folder / "workers.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *argv,
            "--recovery",
            "1",
            env=os.environ | {FOLDER: str(folder)},
            stdout=log,
            stderr=log,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=folder,
            process_group=0,
        )


async def _stop(supervisor: asyncio.subprocess.Process) -> None:
    if supervisor.returncode is None:
        supervisor.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(supervisor.wait(), 10)
    except TimeoutError:
        supervisor.kill()
        await supervisor.wait()


async def _watch(jobs: Jobs, show: Show) -> None:
    while True:
        counts = await jobs.counts()
        show(counts, "")
        if all(of.pending + of.processing == 0 for of in counts):
            return
        await asyncio.sleep(0.1)


async def _interfere(jobs: Jobs, folder: Path, deeds: Deeds, show: Show) -> None:
    """Wait until the poison has had its effect, kill one worker and freeze another, each in mid-work."""
    await _until_done(jobs, JOBS // 10)
    async with _stopped(jobs, ()) as (pid, deeds.killed, held):
        deeds.killed_at = await jobs.now()
        _signal(pid, signal.SIGKILL)
        show(await jobs.counts(), f"killed worker {pid} with SIGKILL: it held {len(held)} jobs")
    await _until_done(jobs, JOBS // 4)
    lost: set[str] = set()
    while not lost:
        while await _locked(folder):  # by the one that was woken just now: it needs its time to let go
            continue
        async with _stopped(jobs, (deeds.killed,)) as (pid, deeds.frozen, held):
            if await _locked(folder):
                continue  # it was stopped with the lock: nobody could take its jobs, nor do any other
            event = f"froze worker {pid} with SIGSTOP for {FROZEN:.0f} s: it holds {len(held)} jobs"
            show(await jobs.counts(), f"{event}, lease {LEASE:.0f} s")
            await asyncio.sleep(FROZEN)
            lost = held - await _held_by(jobs, deeds.frozen)
    show(await jobs.counts(), f"woke worker {pid}: what it still has to say is refused")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAKING):
            while not refused(folder):
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _stopped(jobs: Jobs, but: Sequence[str]) -> AsyncIterator[tuple[int, str, set[str]]]:
    """A worker that stands still while it holds jobs: its pid, its name and what it holds. It goes on in any case:
    stopped, it would hear of no end, and outlive us."""
    while True:
        pid, owner = await _busiest(jobs, but)
        _signal(pid, signal.SIGSTOP)
        try:
            if held := await _held_by(jobs, owner):  # if not, it settled them just before
                yield pid, owner, held
                return
        finally:
            _signal(pid, signal.SIGCONT)


async def _locked(folder: Path) -> bool:
    """Whether somebody has the file's write lock and does not let go of it."""
    return await asyncio.to_thread(lasts, str(folder / "jobs.db"), MOMENT)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is dead
        os.kill(pid, number)


async def _held_by(jobs: Jobs, owner: str) -> set[str]:
    held = (await jobs.find(Filter(status=Status.PROCESSING), 1000)).jobs
    return {job.id for job in held if job.owner == owner}


def refused(folder: Path) -> int:
    """How many writes of workers that had lost their lease were refused, by the workers' own logs."""
    lines = (folder / "workers.log").read_text(errors="replace").splitlines()
    return sum(any(text in line for text in REFUSED) for line in lines)


async def _until_done(jobs: Jobs, count: int) -> None:
    while sum(of.completed for of in await jobs.counts()) < count:
        await asyncio.sleep(0.02)


async def _busiest(jobs: Jobs, but: Sequence[str]) -> tuple[int, str]:
    """The living worker that holds most jobs: its pid and its name."""
    while True:
        held = (await jobs.find(Filter(status=Status.PROCESSING), 1000)).jobs
        owners = [job.owner for job in held if job.owner and job.owner not in but and not job.crashes]
        workers = {worker.id: worker for worker in await jobs.workers()}
        for owner in sorted(set(owners), key=owners.count, reverse=True):
            if owner in workers and _lives(workers[owner].pid) and owners.count(owner) >= 3:
                return workers[owner].pid, owner
        await asyncio.sleep(0.005)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
