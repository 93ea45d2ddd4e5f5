"""Verbs that stop and start queues."""

from __future__ import annotations

import click

from unstuck.cli.output import json_option, plainly, print_json, print_table, say, store_option, with_jobs
from unstuck.jobs import Jobs
from unstuck.store import Counts


@click.command()
@click.argument("queue")
@click.option("--why", default="paused by hand", show_default=True, help="Told to whoever asks.")
@store_option
@json_option
@plainly
def pause(queue: str, why: str, store: str | None, as_json: bool) -> None:
    """Stop leasing jobs of QUEUE; running ones go on."""

    async def work(jobs: Jobs) -> None:
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

    async def work(jobs: Jobs) -> bool:
        return await jobs.resume(queue)

    lifted = with_jobs(store, work)
    if as_json:
        print_json({"queue": queue, "resumed": lifted})
    else:
        say(f"queue {queue} is open again" if lifted else f"queue {queue} was not paused")


@click.command()
@store_option
@json_option
@plainly
def status(store: str | None, as_json: bool) -> None:
    """Show every queue in numbers."""

    async def work(jobs: Jobs) -> list[Counts]:
        return await jobs.counts()

    counts = with_jobs(store, work)
    if as_json:
        print_json(counts)
        return
    print_table(
        [
            "QUEUE",
            "PENDING",
            "DELAYED",
            "PROCESSING",
            "EXPIRED",
            "COMPLETED",
            "FAILED",
            "RECOVERED",
            "PAUSED",
        ],
        [
            (
                c.queue,
                c.pending,
                c.delayed,
                c.processing,
                c.expired,
                c.completed,
                c.failed,
                c.totals.get("reaper.requeues", 0),
                c.paused,
            )
            for c in counts
        ],
    )
