"""What all verbs share: the store option, errors as one line, tables and JSON."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from unstuck.environ import embed_store
from unstuck.errors import ConfigError, PayloadError, UnknownJob, UnstuckError
from unstuck.jobs import Jobs
from unstuck.redact import redact
from unstuck.settings import FILE
from unstuck.settings import load as load_settings
from unstuck.stores import existing_store, open_store
from unstuck.stores.whereabouts import fleeting

P = ParamSpec("P")
T = TypeVar("T")
WRONG_INPUT = (ConfigError, PayloadError, UnknownJob)

_store = partial(click.option, "--store", metavar="URL", help="Where the jobs are (or UNSTUCK_STORE).")
store_option = _store(envvar="UNSTUCK_STORE")
store_argument = _store()  # for verbs that load settings, which know the variable
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
    """Open the store, do the work, close it.

    Only a ``new`` one is prepared: who looks at a store, or mends what is in it, is not held up by what is wrong with it.
    """

    async def run() -> T:
        async with (open_store if new else existing_store)(named(url)) as store:
            if new:
                await store.migrate()
            return await work(Jobs(store))

    return asyncio.run(run())


def remind(url: str | None, *texts: str) -> None:
    """Commands that were suggested find their store in the environment; if that names another one, say which is meant."""
    with suppress(ConfigError):  # what the environment or a file says wrong is no matter here
        if url == _usual():
            return
    if url and any("unstuck " in text for text in texts):
        shown = shlex.quote(url) if redact(url, 500) == url else "and its URL, with the password"
        say(f"these commands mean this store: --store {shown}")


def named(url: str | None) -> str:
    if not (found := _usual() if url is None else url):
        raise ConfigError(
            f"no store is named: use --store sqlite:///jobs.db or set UNSTUCK_STORE, or let {FILE} say store"
        )
    if fleeting(found):
        raise ConfigError(f"store {found} would be gone with this command: name a file")
    return found


def _usual() -> str | None:
    """The store that is meant where none is named: by the environment, else by the file in the current folder."""
    return os.environ.get("UNSTUCK_STORE") or embed_store(os.environ) or load_settings(None, os.environ).store


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
