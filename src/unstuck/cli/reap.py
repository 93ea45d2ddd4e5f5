"""The verb that recovers jobs, of a store or of tables that are not ours, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from unstuck.cli.filters import seconds
from unstuck.cli.output import (
    json_option,
    named,
    plainly,
    print_json,
    say,
    store_argument,
    table_option,
    with_tables,
)
from unstuck.cli.work import metrics, metrics_option, on_signals
from unstuck.model import Outcome
from unstuck.policy import within_a_day
from unstuck.reaper import Reaper
from unstuck.settings import LEVELS, Settings
from unstuck.settings import load as load_settings
from unstuck.store import GRACE
from unstuck.stores import existing_store, open_tables
from unstuck.telemetry import log_json


@click.command()
@click.option("--once", is_flag=True, help="Recover what is lost now, print how much that was, and end.")
@table_option
@click.option("--interval", type=seconds, help="Time between recoveries: 30 or 30s, 5m [default: 60s]")
@click.option(
    "--grace",
    type=seconds,
    default=GRACE,
    help="How long a job processed without a lease may be silent before it is given one. [default: 1h]",
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
    settings = load_settings(config, os.environ, recovery=interval, **given)
    log_json(settings.log_level)
    if once and sys.stderr.isatty():
        logging.getLogger().handlers[0].addFilter(_not_said_anyway)
    url = named(settings.store)
    if tables:
        done, troubles = asyncio.run(_tables(with_tables(url, tables), settings, grace, once=once))
    else:
        done, troubles = asyncio.run(_store(url, settings, grace, once=once))
    if once:
        _told(done, troubles, as_json=as_json)


def _not_said_anyway(record: logging.LogRecord) -> bool:
    """Who reads along is told in words at the end, and once is enough."""
    return not str(record.msg).startswith(("recovered %d jobs", "cannot recover"))


async def _store(
    url: str, settings: Settings, grace: float, *, once: bool
) -> tuple[list[Outcome], Sequence[str]]:
    async with existing_store(url) as store:
        if not once:
            await store.migrate()
        return await _run(Reaper(store, interval=settings.recovery, grace=grace), url, settings, once=once)


async def _tables(
    url: str, settings: Settings, grace: float, *, once: bool
) -> tuple[list[Outcome], Sequence[str]]:
    async with open_tables(url) as tables:
        reaper = Reaper(tables, interval=settings.recovery, grace=grace)
        return await _run(reaper, tables.twin, settings, once=once)


async def _run(
    reaper: Reaper, measured: str | Callable[[], Any], settings: Settings, *, once: bool
) -> tuple[list[Outcome], Sequence[str]]:
    if once:
        return await reaper.recover(), reaper.troubles
    task = asyncio.create_task(reaper.run())

    def stop(*, at_once: bool = False) -> None:  # noqa: ARG001 - it always ends at once
        task.cancel()

    on_signals(stop)
    with metrics(measured, settings.metrics_port, reaper):
        await asyncio.wait([task])
    return [], ()


def _told(done: Sequence[Outcome], troubles: Sequence[str], *, as_json: bool) -> None:
    words = Counter(str(outcome.status) for outcome in done)
    told = {
        "recovered": len(done),
        "requeued": words["pending"],
        "failed": words["failed"],
        "troubles": list(troubles),
    }
    if as_json:
        print_json(told)
    else:
        say(f"recovered {told['recovered']} jobs: {told['requeued']} requeued, {told['failed']} failed")
        for trouble in troubles:
            click.echo(f"unstuck: {trouble}", err=True)
    if troubles:
        sys.exit(1)
