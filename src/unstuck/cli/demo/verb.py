"""``unstuck demo``."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import click

from unstuck.cli.output import json_option, plainly, print_json


@click.command()
@click.option(
    "--keep", is_flag=True, help="Keep the folder with the store, the effects and the workers' logs."
)
@json_option
@plainly
def demo(keep: bool, as_json: bool) -> None:
    """Watch 2,000 jobs survive a killed worker, a frozen one and a poison job, in less than a minute."""
    folder = Path(tempfile.mkdtemp(prefix="unstuck-demo-"))
    from unstuck.cli.demo.tasks import FOLDER

    os.environ[FOLDER] = str(folder)
    try:
        sys.exit(asyncio.run(_demo(folder, as_json)))
    finally:
        if keep:
            click.echo(f"kept {folder}", err=True)
        else:
            _remove(folder)


async def _demo(folder: Path, as_json: bool) -> int:
    from unstuck import Jobs
    from unstuck.cli.demo.play import JOBS, play
    from unstuck.cli.demo.screen import Screen
    from unstuck.cli.demo.verdict import judge

    began = time.monotonic()
    screen = Screen()
    if not as_json:
        click.echo(f"{JOBS} jobs, three worker processes under a supervisor, one file: {folder / 'jobs.db'}")
    deeds = await play(folder, (lambda *_: None) if as_json else screen.show)
    async with Jobs.open(f"sqlite:///{folder / 'jobs.db'}") as jobs:
        verdict = await judge(jobs, folder, deeds)
    rows = [*verdict.rows, ("seconds", f"{time.monotonic() - began:.1f}")]
    if as_json:
        print_json({"numbers": dict(rows), "wrong": verdict.wrong})
    else:
        screen.table(rows)
        for mistake in verdict.wrong:
            click.echo(f"WRONG: {mistake}")
        if not verdict.wrong:
            click.echo("every job is accounted for")
        elif not deeds.gave_up:
            click.echo("this must not be: please report it")
    return int(bool(verdict.wrong))


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
