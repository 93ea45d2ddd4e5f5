"""What all verbs share: the store option, errors as one line, tables and JSON."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from unstuck.environ import embed_store
from unstuck.errors import ConfigError, PayloadError, UnknownJob, UnstuckError
from unstuck.jobs import Jobs
from unstuck.redact import redact
from unstuck.stores import existing_store, open_store

P = ParamSpec("P")
T = TypeVar("T")
WRONG_INPUT = (ConfigError, PayloadError, UnknownJob)

store_option = click.option(
    "--store", envvar="UNSTUCK_STORE", metavar="URL", help="Where the jobs are (or UNSTUCK_STORE)."
)
store_argument = click.option("--store", metavar="URL", help="Where the jobs are (or UNSTUCK_STORE).")
table_option = click.option(
    "--table", "tables", multiple=True, metavar="NAME", help="A table of yours; may be given several times."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """Wrong input: one line and exit code 2. Anything else of ours: one line and exit code 1."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except UnstuckError as error:
            click.echo(f"unstuck: {redact(' '.join(str(error).split()), 4000)}", err=True)
            sys.exit(2 if isinstance(error, WRONG_INPUT) else 1)
        except BrokenPipeError:  # the reader of our output has gone, as `head` does
            sys.stderr.close()
            sys.exit(0)

    return call


def with_jobs(url: str | None, work: Callable[[Jobs], Awaitable[T]], *, new: bool = False) -> T:
    """Open the store, which may be a ``new`` one, do the work, close it."""

    async def run() -> T:
        async with (open_store if new else existing_store)(named(url)) as store:
            await store.migrate()
            return await work(Jobs(store))

    return run_async(run())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def named(url: str | None) -> str:
    if found := url or embed_store(os.environ):
        return found
    raise ConfigError("no store is named: use --store sqlite:///jobs.db or set UNSTUCK_STORE")


def with_tables(url: str, tables: Sequence[str]) -> str:
    """The URL of a database, and which tables in it are meant."""
    more = urlencode([("table", table) for table in tables])
    return f"{url}{'&' if '?' in url else '?'}{more}"


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    lines = [[_cell(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(line[n]) for line in lines)]) for n, title in enumerate(head)]
    for line in [list(head), *lines]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def say(text: str) -> None:
    """Print a sentence that may quote what strangers wrote."""
    click.echo(redact(text, 2000))


def shown(when: datetime | None) -> str:
    return "" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: Any) -> str:
    return redact("" if value is None else str(value), 100).replace("\n", " ")
