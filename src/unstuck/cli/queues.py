"""Verbs that stop and start queues."""

from __future__ import annotations

import click

from unstuck.cli.filters import must_know
from unstuck.cli.output import json_option, plainly, print_json, print_table, say, store_option, with_jobs
from unstuck.health import alive
from unstuck.jobs import Jobs
from unstuck.store import Counts
from unstuck.wording import command, lasting


@click.command()
@click.argument("queue")
@click.option("--why", default="paused by hand", show_default=True, help="Told to whoever asks.")
@click.option("--new", is_flag=True, help="Also if nobody has used the queue yet.")
@store_option
@json_option
@plainly
def pause(queue: str, why: str, new: bool, store: str | None, as_json: bool) -> None:
    """Stop leasing jobs of QUEUE; running ones go on."""

    async def work(jobs: Jobs) -> None:
        if not new:
            await must_know(jobs, queue, ": say --new to pause it before its first job")
        await jobs.pause(queue, why)

    with_jobs(store, work)
    print_json({"queue": queue, "paused": why}) if as_json else say(f"queue {queue} is paused: {why}")


@click.command()
@click.argument("queue")
@store_option
@json_option
@plainly
def resume(queue: str, store: str | None, as_json: bool) -> None:
    """Let jobs of QUEUE run again after a pause or a halt. Start a worker that halted anew besides."""

    async def work(jobs: Jobs) -> tuple[bool, bool]:
        await must_know(jobs, queue)
        return await jobs.resume(queue), queue in await _taken(jobs)

    lifted, taken = with_jobs(store, work)
    if as_json:
        print_json({"queue": queue, "resumed": lifted})
        return
    say(f"queue {queue} is open again" if lifted else f"queue {queue} was not paused")
    if not taken:
        say(f"no worker takes it: start one, {command('worker', 'MODULE:APP', queue=queue)}")


@click.command()
@store_option
@json_option
@plainly
def status(store: str | None, as_json: bool) -> None:
    """Show every queue in numbers. WAITED is for how long the next job in line has been due."""

    async def work(jobs: Jobs) -> tuple[list[Counts], set[str]]:
        return await jobs.counts(), await _taken(jobs)

    counts, taken = with_jobs(store, work)
    if as_json:
        print_json(counts)
        return
    numbers = ("pending", "delayed", "processing", "expired", "completed", "failed")
    print_table(
        ["QUEUE", *map(str.upper, numbers), "RECOVERED", "WAITED", "NOTE"],
        [
            (
                of.queue,
                *(getattr(of, name) for name in numbers),
                of.totals.get("reaper.requeues", 0) + of.totals.get("crash.requeues", 0),
                "" if of.waited is None else lasting(of.waited),
                _note(of, taken),
            )
            for of in counts
        ],
    )


async def _taken(jobs: Jobs) -> set[str]:
    now = (await jobs.store.clock()).now
    return {queue for worker in alive(await jobs.workers(), now) for queue in worker.queues}


def _note(of: Counts, taken: set[str]) -> str:
    if of.trouble:
        return of.trouble
    if of.paused is not None:
        return f"paused: {of.paused}"
    return "no worker takes it" if of.pending and of.queue not in taken else ""
