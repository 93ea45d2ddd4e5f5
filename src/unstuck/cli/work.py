"""Verbs that run until they are stopped: worker and reap."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click

from unstuck.app import Unstuck
from unstuck.cli.output import json_option, plainly, print_json, run_async, store_option, with_jobs
from unstuck.errors import ConfigError
from unstuck.jobs import Jobs
from unstuck.policy import number
from unstuck.reaper import Reaper
from unstuck.telemetry import log_json
from unstuck.worker import Worker

LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"]


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--concurrency", type=int, default=10, show_default=True, help="Jobs at a time.")
@click.option(
    "--grace",
    type=float,
    default=30.0,
    show_default=True,
    help="Seconds running jobs get when it is stopped.",
)
@click.option(
    "--recovery",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds between recoveries of lost jobs; 0 switches them off.",
)
@click.option("--burst", is_flag=True, help="End when nothing is due any more.")
@click.option("--log-level", type=click.Choice(LEVELS), default="INFO", show_default=True)
@store_option
@plainly
def worker(
    app: str,
    queues: tuple[str, ...],
    concurrency: int,
    grace: float,
    recovery: float,
    burst: bool,
    log_level: str,
    store: str | None,
) -> None:
    """Run the jobs of MODULE:APP, for example shop.tasks:app.

    SIGTERM and Ctrl-C take no more jobs and wait for the running ones; a second one ends at once.
    """
    log_json(log_level)
    found = load(app)

    async def work() -> None:
        one = Worker(
            found, queues=queues or None, concurrency=concurrency, grace=grace, recovery=recovery, burst=burst
        )
        on_signals(one.stop)
        try:
            async with found.using(store or found.url):
                await one.run()
        finally:
            if one.deaf:
                leave()

    run_async(work())


@click.command()
@click.option("--once", is_flag=True, help="Recover what is lost now, print how much that was, and end.")
@click.option(
    "--interval",
    type=float,
    envvar="REAPER_INTERVAL_SEC",
    default=60.0,
    show_default=True,
    help="Seconds between recoveries.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="INFO", show_default=True)
@store_option
@json_option
@plainly
def reap(once: bool, interval: float, log_level: str, store: str | None, as_json: bool) -> None:
    """Recover jobs whose worker died: end the leases that ran out."""
    log_json(log_level)
    number("interval", interval, 0.0, 86400.0)

    async def work(jobs: Jobs) -> int:
        if once:
            return await jobs.recover_stale_jobs()
        task = asyncio.create_task(Reaper(jobs.store, interval=interval).run())
        on_signals(task.cancel)
        await asyncio.wait([task])
        return 0

    recovered = with_jobs(store, work)
    if once:
        print_json({"recovered": recovered}) if as_json else click.echo(f"recovered {recovered} jobs")


def load(name: str) -> Unstuck:
    """The app that MODULE:APP names, looked for in the current folder first."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ConfigError(f"app {name!r} is not written as MODULE:APP, for example shop.tasks:app")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"app {name!r}: module {error.name!r} is not found; start in the folder that has it"
        ) from error
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"app {name!r}: module {module!r} cannot be imported: {told}{_place(error)}"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise ConfigError(f"app {name!r}: module {module!r} has no {attribute!r}")
    if not isinstance(found, Unstuck):
        raise ConfigError(f"app {name!r} is a {type(found).__name__}, not an Unstuck(…)")
    return found


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" (at {Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def on_signals(stop: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    for number_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number_, stop)


def leave() -> None:
    """End the process although a handler does not: its job has been given back, and nobody can stop it."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
