"""Verbs that stop and start queues."""

from __future__ import annotations

import click

from unstuck.cli.output import json_option, plainly, print_json, say, store_option, with_jobs
from unstuck.jobs import Jobs


@click.command()
@click.argument("queue")
@click.option("--why", default="paused by hand", show_default=True, help="Told to whoever asks.")
@store_option
@plainly
def pause(queue: str, why: str, store: str | None) -> None:
    """Stop leasing jobs of QUEUE; running ones go on."""

    async def work(jobs: Jobs) -> None:
        await jobs.pause(queue, why)

    with_jobs(store, work)
    say(f"queue {queue} is paused: {why}")


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
