"""What all verbs share: the store option, errors as one line, tables and JSON."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import click
import msgspec

from unstuck import ConfigError, Jobs, PayloadError, UnknownJob, UnstuckError
from unstuck.cli.settings import FILE
from unstuck.cli.settings import load as load_settings
from unstuck.operations.new_job import RegisteredTask
from unstuck.operations.store_urls import ends_with_process, same_store
from unstuck.text.redact import redact

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


def with_jobs(url: str | None, work: Callable[[Jobs], Awaitable[T]], *, create: bool = False) -> T:
    """As ``with_jobs_at``, in the store that is meant; see ``named``."""
    return with_jobs_at(named(url), work, create=create)


def with_jobs_at(
    url: str,
    work: Callable[[Jobs], Awaitable[T]],
    *,
    create: bool = False,
    tasks: Mapping[str, RegisteredTask] | None = None,
) -> T:
    """Open the store, do the work with the tasks of an app, if one is named, and close it.

    Only a verb that may ``create`` a store also migrates it: one that looks at a store or repairs what is in it must not
    fail because of what is wrong with the schema.
    """

    async def run() -> T:
        async with Jobs.open(url, create=create, tasks=tasks) as jobs:
            return await work(jobs)

    return asyncio.run(run())


def remind(url: str | None, *texts: str) -> None:
    """Suggested commands find their store in the environment; if that names another one, print which is meant."""
    with suppress(ConfigError):  # mistakes in the environment or the file do not matter here
        if url is None or same_store(url, usual_store() or ""):
            return
    if url and any("unstuck " in text for text in texts):
        shown = shlex.quote(url) if redact(url, 500) == url else "and its URL, with the password"
        print_text(f"these commands mean this store: --store {shown}")


def named(url: str | None) -> str:
    """The store that is meant, with a line on stderr if the environment and the file name different ones."""
    if not (found := usual_store() if url is None else url):
        raise ConfigError(
            f"no store is named: use --store sqlite:///jobs.db or set UNSTUCK_STORE, or let {FILE} say store"
        )
    if ends_with_process(found):
        raise ConfigError(f"store {found} would be gone with this command: name a file")
    if url in (None, os.environ.get("UNSTUCK_STORE")):
        _note_another(found)
    return found


def usual_store() -> str | None:
    """The store to use where no option names one: that of UNSTUCK_STORE, or of the file in the current folder."""
    return os.environ.get("UNSTUCK_STORE") or load_settings(None, os.environ).store


def _note_another(found: str) -> None:
    """Print a note if the environment names this store and the file in the current folder another one."""
    with suppress(ConfigError):  # other mistakes in the file do not matter here
        other = load_settings(None, {}).store
        if other and not same_store(found, other):
            note = f"the store is {redact(found, 500)}, by UNSTUCK_STORE; {FILE} names {redact(other, 500)}"
            click.echo(note, err=True)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    for line in table_lines(head, rows):
        click.echo(line)


def table_lines(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A table with aligned columns, the head first. Secrets and line ends in the cells are replaced."""
    lines = [list(head), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def print_text(text: str) -> None:
    """Print a sentence that may quote what strangers wrote."""
    click.echo(redact(text, 2000))


def shown(when: datetime | None) -> str:
    return "" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: Any) -> str:
    return redact("" if value is None else str(value), 100).replace("\n", " ")
