"""The verdict on a demo: every number is read back from the store, the effects file or the workers' logs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from unstuck import Filter, Job, Jobs, Status
from unstuck.cli.demo.play import JOBS, KINDS, LONGEST, Deeds, refused


class Verdict(msgspec.Struct):
    """``rows`` are what is shown; ``wrong`` is empty if all is as it must be."""

    rows: list[tuple[str, str]]
    wrong: list[str]


async def judge(jobs: Jobs, folder: Path, deeds: Deeds) -> Verdict:
    everything = await _all(jobs)
    done = {job.id for job in everything if job.status is Status.COMPLETED}
    dead = [job for job in everything if job.dead]
    unfinished = [job for job in everything if job.status in (Status.PENDING, Status.PROCESSING)]
    noted = folder / "effects"
    effects = [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []
    did = Counter(id_ for what, _, id_, _ in effects if what == "did")
    recovered = [seconds for job in everything for seconds in await _recovered_after(jobs, job, deeds)]
    slowest = max(recovered, default=0.0)
    zombies = refused(folder)
    causes = Counter(f"{job.queue}: {job.error.code if job.error else '?'}" for job in dead)
    wrong = [
        *(["a completed job has no effect"] if done - did.keys() else []),
        *(["jobs were lost"] if len(everything) != JOBS else []),
    ]
    if deeds.gave_up:  # what is not done yet is no fault of anybody
        wrong.append(f"it was not over after {LONGEST:.0f} s: this machine is too slow, or too busy, to tell")
    else:
        wrong += [
            *(["an effect belongs to no completed job"] if did.keys() - done else []),
            *(["jobs are stuck"] if unfinished else []),
            *(
                [f"dead letters are {dict(causes)}"]
                if Counter(job.queue for job in dead) != _expected()
                else []
            ),
            *(["nothing of the killed worker was recovered"] if not recovered else []),
            *(["the frozen worker was not refused anything"] if not zombies else []),
        ]
    rows = [
        ("enqueued", str(JOBS)),
        ("completed", str(len(done))),
        *((f"dead letter, {cause}", str(count)) for cause, count in sorted(causes.items())),
        ("recovered after the kill", str(len(recovered))),
        ("  the slowest of them was free again after", f"{slowest:.2f} s"),
        ("zombie writes refused", str(zombies)),
        ("effects seen outside of the store", str(len(did))),
        ("  of these done twice, by a zombie", str(sum(count > 1 for count in did.values()))),
        ("lost", str(JOBS - len(everything))),
        ("stuck", str(len(unfinished))),
    ]
    return Verdict(rows, wrong)


def _expected() -> Counter[str]:
    return Counter({"bad": KINDS["bad"], "poison": KINDS["poison"]})


async def _all(jobs: Jobs) -> list[Job]:
    found, cursor = [], None
    while True:
        page = await jobs.find(Filter(), 1000, cursor)
        found += page.jobs
        if (cursor := page.cursor) is None:
            return found


async def _recovered_after(jobs: Jobs, job: Job, deeds: Deeds) -> list[float]:
    """Seconds from the kill until the job was taken from the killed worker; nothing if it did not have it."""
    if not job.crashes or deeds.killed_at is None:
        return []
    return [
        max(0.0, (event.at - deeds.killed_at).total_seconds())
        for event in await jobs.events(job=job.ref)
        if event.type.startswith(("crash:", "reaper:"))
        and event.data["details"].get("worker") == deeds.killed
    ]
