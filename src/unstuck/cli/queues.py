"""Verbs that show, stop and start queues."""

from __future__ import annotations

import click

from unstuck import Counts, Jobs, Overview
from unstuck.cli.filters import must_know
from unstuck.cli.output import (
    json_option,
    plainly,
    print_json,
    print_table,
    print_text,
    store_option,
    with_jobs,
)
from unstuck.text.phrases import command, lasting


@click.command()
@click.argument("queue")
@click.option("--why", default="paused by hand", show_default=True, help="Shown to everybody who looks.")
@click.option("--new", is_flag=True, help="Also if nobody has used the queue yet.")
@store_option
@json_option
@plainly
def pause(queue: str, why: str, new: bool, store: str | None, as_json: bool) -> None:
    """Stop leasing jobs of QUEUE; running ones go on."""

    async def work(jobs: Jobs) -> None:
        if not new:
            await must_know(jobs, queue, ": use --new to pause it before its first job")
        await jobs.pause(queue, why)

    with_jobs(store, work)
    print_json({"queue": queue, "paused": why}) if as_json else print_text(f"queue {queue} is paused: {why}")


@click.command()
@click.argument("queue")
@store_option
@json_option
@plainly
def resume(queue: str, store: str | None, as_json: bool) -> None:
    """Let jobs of QUEUE run again after a pause or a halt. A worker that halted must also be started again."""

    async def work(jobs: Jobs) -> tuple[bool, bool]:
        await must_know(jobs, queue)
        return await jobs.resume(queue), queue in (await jobs.overview(running=0, dead=0)).taken

    lifted, taken = with_jobs(store, work)
    if as_json:
        print_json({"queue": queue, "resumed": lifted})
        return
    print_text(f"queue {queue} is open again" if lifted else f"queue {queue} was not paused")
    if not taken:
        print_text(f"no worker takes it: start one, {command('worker', 'MODULE:APP', queue=queue)}")


@click.command()
@store_option
@json_option
@plainly
def status(store: str | None, as_json: bool) -> None:
    """Show every queue in numbers. WAITED is for how long the next job in line has been due."""

    async def work(jobs: Jobs) -> Overview:
        return await jobs.overview(running=0, dead=0)

    found = with_jobs(store, work)
    if as_json:
        print_json(found.queues)
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
                _note(of, found.taken),
            )
            for of in found.queues
        ],
    )


def _note(of: Counts, taken: set[str]) -> str:
    if of.trouble:
        return of.trouble
    if of.stopped:
        return of.stopped
    return "no worker takes it" if of.pending and of.queue not in taken else ""
