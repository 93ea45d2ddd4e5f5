"""The verb that recovers jobs, of a store or of tables of another system, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from unstuck import Jobs, JobTables, Reaper, Recovered, log_json
from unstuck.background import end
from unstuck.cli.filters import seconds
from unstuck.cli.output import (
    json_option,
    named,
    plainly,
    print_json,
    print_text,
    store_argument,
    table_option,
)
from unstuck.cli.settings import LEVELS, Settings
from unstuck.cli.settings import load as load_settings
from unstuck.cli.work import metrics, metrics_option, on_signals
from unstuck.config.checks import within_a_day
from unstuck.config.policy import RECOVERY
from unstuck.text.phrases import counted


@click.command()
@click.option("--once", is_flag=True, help="Recover what is lost now, print how much that was, and end.")
@table_option
@click.option("--interval", type=seconds, help="Time between recoveries: 30 or 30s, 5m [default: 60s]")
@click.option(
    "--grace",
    type=seconds,
    default="1h",
    show_default=True,
    help="How long a job processed without a lease may be silent before it is given one.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Settings. [default: unstuck.toml, if there]")
@metrics_option
@click.option("--log-level", type=click.Choice(LEVELS), help="[default: INFO]")
@store_argument
@json_option
@plainly
def reap(
    once: bool,
    tables: tuple[str, ...],
    interval: float | None,
    grace: float,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Recover jobs whose worker died: end the leases that ran out.

    With --table it looks after tables of yours, as they are: jobs and asr_jobs, for example.
    """
    log_json()
    if interval is not None:
        within_a_day("interval", interval)
    settings = load_settings(config, os.environ, reaping=True, recovery=interval, **given)
    log_json(settings.log_level)
    if once and sys.stderr.isatty():
        logging.getLogger().handlers[0].addFilter(_not_printed_anyway)
    url = named(settings.store)
    if once:
        _print(asyncio.run(_recover_once(url, tables, grace)), as_json=as_json)
    else:
        asyncio.run(_keep_recovering(url, tables, settings, grace))


def _not_printed_anyway(record: logging.LogRecord) -> bool:
    """On a terminal the same is printed in words at the end, and once is enough."""
    return not str(record.msg).startswith(("recovered %d jobs", "cannot recover"))


async def _recover_once(url: str, tables: Sequence[str], grace: float) -> Recovered:
    async with JobTables.open(url, tables) if tables else Jobs.open(url) as opened:
        return await opened.recover(grace=grace)


async def _keep_recovering(url: str, tables: Sequence[str], settings: Settings, grace: float) -> None:
    if tables:
        async with JobTables.open(url, tables) as foreign:
            reaper = foreign.reaper(
                interval=RECOVERY if settings.recovery is None else settings.recovery, grace=grace
            )
            await _run(reaper, foreign.measured, settings.metrics_port)
    else:
        async with Jobs.open(url) as jobs:
            await jobs.migrate()
            reaper = jobs.reaper(
                interval=RECOVERY if settings.recovery is None else settings.recovery, grace=grace
            )
            await _run(reaper, url, settings.metrics_port)


async def _run(reaper: Reaper, measured: str | Callable[[], Any], metrics_port: int | None) -> None:
    """Run a reaper until a signal ends it."""
    task = asyncio.create_task(reaper.run())
    stopped = asyncio.Event()

    def stop(*, at_once: bool = False) -> None:  # noqa: ARG001 - it always ends at once
        stopped.set()

    task.add_done_callback(lambda _: stopped.set())
    on_signals(stop)
    with metrics(measured, metrics_port, reaper):
        await stopped.wait()
        await end([task])


def _print(done: Recovered, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        print_text(f"recovered {done.recovered} jobs: {done.requeued} requeued, {done.failed} failed")
        if done.expired:
            print_text(f"failed {counted(done.expired, 'job')} that expired before a worker started them")
        for trouble in done.troubles:
            click.echo(f"unstuck: {trouble}", err=True)
    if done.troubles:
        sys.exit(1)
