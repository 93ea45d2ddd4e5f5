"""Verbs that prepare a store and look at it with a critical eye."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
from click.shell_completion import get_completion_class

from unstuck.abilities import Stuck
from unstuck.cli.output import (
    json_option,
    named,
    plainly,
    print_json,
    print_table,
    remind,
    say,
    store_option,
    table_option,
    with_tables,
)
from unstuck.doctor import doctor as examine
from unstuck.doctor import doctor_tables
from unstuck.environ import neo4j_url
from unstuck.errors import ConfigError, StoreError
from unstuck.redact import redact
from unstuck.settings import FILE
from unstuck.store import Finding, Store
from unstuck.stores import existing_store, open_store, open_tables
from unstuck.wording import counted, lasting

T = TypeVar("T")
MARKS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE"}
SAMPLE = """\
# Settings of `unstuck worker`; every one of them is optional. The environment and arguments win over this file.
{store}
# app = "shop.tasks:app"

[worker]
processes = 1
concurrency = 10
grace = 30        # seconds for running jobs when it is stopped
recovery = 60     # seconds between recoveries of lost jobs

# [queue.mail]
# lease = 20
# heartbeat = 5
# rate = {{ count = 20, per = 60 }}
# retention = 14  # days
"""


@click.command()
@table_option
@click.option("--dry-run", is_flag=True, help="With --table: only print the SQL.")
@click.option("--uri", help="Of a Neo4j server, instead of --store: bolt://host:7687")
@click.option("--username", help="With --uri.")
@click.option("--password", help="With --uri; better by EMBED_JOB_DATABASE_PASSWORD.")
@click.option("--database", help="With --uri: embedding-jobs, unless you name another.")
@store_option
@json_option
@plainly
def init(
    tables: tuple[str, ...],
    dry_run: bool,
    uri: str | None,
    username: str | None,
    password: str | None,
    database: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Create or update the store's schema, and write a sample unstuck.toml if there is none.

    With --table it gives tables of yours the columns and indexes that a reaper or worker can use, and nothing else:
    all columns are empty or have a default, and indexes are built while everybody works.
    """
    if uri is not None:
        secret = password or os.environ.get("EMBED_JOB_DATABASE_PASSWORD")
        url = neo4j_url("--uri", uri, username, secret, database)
    elif username or password or database:
        raise ConfigError(
            "--username, --password and --database belong to --uri: say the server's address, too"
        )
    else:
        url = named(store)
    if dry_run and not tables:
        raise ConfigError("--dry-run is for --table: it prints the SQL that would be run on it")
    if tables:
        _prepare(with_tables(url, tables), dry_run=dry_run, as_json=as_json)
        return

    async def work() -> list[Finding]:
        async with open_store(url) as opened:
            await opened.migrate()
            return await opened.checkup()

    findings = asyncio.run(work())
    file = Path(FILE)
    if written := not file.exists():
        file.write_text(SAMPLE.format(store=_line(url)))
    if as_json:
        print_json({"store": redact(url, 500), "wrote": FILE if written else None})
        return
    say(f"the store is ready: {url}")
    _print_findings(findings)
    say(f"wrote {FILE}" if written else f"{FILE} is there already and was left as it is")


def _line(url: str) -> str:
    """What the sample says of the store. A secret does not belong into a file that is easily committed."""
    shown = redact(url, 500)
    if shown == url:
        return f'store = "{url}"'
    return f'# Its URL has a password: say it by UNSTUCK_STORE or --store.\n# store = "{shown}"'


def _prepare(url: str, *, dry_run: bool, as_json: bool) -> None:
    async def work() -> list[str]:
        async with open_tables(url) as tables:
            return await tables.preparation() if dry_run else await tables.prepare()

    sql = asyncio.run(work())
    if as_json:
        print_json({"sql": sql, "applied": not dry_run})
    elif dry_run:
        for text in sql:
            click.echo(f"{text};")
        if not sql:
            click.echo("-- nothing is missing")
    else:
        for text in sql:
            say(" ".join(text.split()))
        say("the tables are ready")


@click.command()
@click.argument("url", required=False)
@table_option
@store_option
@json_option
@plainly
def doctor(url: str | None, tables: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Look at a store and say what is wrong with it, and what to do. Exit code 1 if anything is broken.

    With --table it looks at tables of yours: what is stuck, since when, and what a reaper would do. It only reads.
    """
    address = named(url or store)
    stuck: list[Stuck] = []
    try:
        if tables:
            findings, stuck = asyncio.run(_look_at(with_tables(address, tables)))
        else:
            findings = asyncio.run(_open(address, examine))
    except StoreError as error:
        findings = [Finding("failure", f"the store cannot be opened: {error}", "mend that first")]
    if as_json:
        print_json({"findings": findings, "stuck": stuck} if tables else findings)
    else:
        if stuck:
            _print_stuck(stuck)
        _print_findings(findings)
        remind(address, *(finding.fix for finding in findings))
    sys.exit(int(any(finding.level == "failure" for finding in findings)))


@click.command()
@click.argument("url", required=False)
@store_option
@json_option
@plainly
def verify(url: str | None, store: str | None, as_json: bool) -> None:
    """Check the rules that must always hold, reading only. Exit code 1 if one is broken."""
    broken = asyncio.run(_open(named(url or store), lambda opened: opened.verify()))
    if as_json:
        print_json({"broken": broken})
    else:
        for line in broken:
            say(f"broken: {line}")
        say(f"{counted(len(broken), 'broken rule')}" if broken else "all rules hold")
    sys.exit(int(bool(broken)))


async def _look_at(url: str) -> tuple[list[Finding], list[Stuck]]:
    async with open_tables(url) as tables:
        return await doctor_tables(tables)


def _print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        say(
            f"{MARKS[finding.level]}  {finding.what}" + (f"\n         → {finding.fix}" if finding.fix else "")
        )


def _print_stuck(stuck: Sequence[Stuck]) -> None:
    head = ("TABLE", "ID", "STAGE", "HELD BY", "HEARD", "LEASE ENDED", "TRIES", "A REAPER WOULD", "BECAUSE")
    print_table(
        head,
        [
            (
                row.table,
                row.id,
                row.stage,
                row.held_by,
                _ago(row.heard),
                _ago(row.ended),
                f"{row.attempts}/{row.max_attempts}",
                row.would,
                row.why,
            )
            for row in stuck
        ],
    )
    click.echo()


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{lasting(seconds)} ago"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@plainly
def completion(shell: str) -> None:
    """Print what makes a shell complete this command: eval "$(unstuck completion bash)" """
    from unstuck.cli import main

    found = get_completion_class(shell)
    if found is None:
        raise ConfigError(f"shell {shell!r} is not known: bash, zsh or fish")
    click.echo(found(main, {}, "unstuck", "_UNSTUCK_COMPLETE").source())


async def _open(url: str, look: Callable[[Store], Awaitable[T]]) -> T:
    async with existing_store(url) as store:
        return await look(store)
