"""Verbs that prepare a store and check it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from unstuck import ConfigError, Finding, Jobs, JobTables, StoreError, Stuck, neo4j_url
from unstuck.cli.output import (
    json_option,
    named,
    plainly,
    print_json,
    print_table,
    print_text,
    remind,
    store_option,
    table_option,
    with_jobs,
    with_jobs_at,
)
from unstuck.cli.settings import FILE
from unstuck.text.phrases import counted, lasting
from unstuck.text.redact import redact

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
@click.option("--write-config", is_flag=True, help="Also write a sample unstuck.toml, if there is none.")
@click.option("--uri", help="Of a Neo4j server, instead of --store: bolt://host:7687")
@click.option("--username", help="With --uri.")
@click.option("--password", help="With --uri; better in the URL of UNSTUCK_STORE, without --uri.")
@click.option("--database", help="With --uri: embedding-jobs, unless you name another.")
@store_option
@json_option
@plainly
def init(
    tables: tuple[str, ...],
    dry_run: bool,
    write_config: bool,
    uri: str | None,
    username: str | None,
    password: str | None,
    database: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Create or update the store's schema. With --write-config also write a sample unstuck.toml, if there is none.

    A worker that starts in this folder then uses the store that the file names, and not that of its app.

    With --table it gives tables of yours the columns and indexes that a reaper or worker can use, and nothing else:
    all columns are empty or have a default, and indexes are built while everybody works.
    """
    if uri is not None:
        url = neo4j_url(uri, username, password, database, what="--uri")
    elif username or password or database:
        raise ConfigError(
            "--username, --password and --database belong to --uri: give the server's address, too"
        )
    else:
        url = named(store)
    if dry_run and not tables:
        raise ConfigError("--dry-run is for --table: it prints the SQL that would be run on it")
    if tables:
        _prepare(url, tables, dry_run=dry_run, as_json=as_json)
        return

    findings = with_jobs_at(url, Jobs.checkup, create=True)
    file = Path(FILE)
    if written := write_config and not file.exists():
        file.write_text(SAMPLE.format(store=_line(url)))
    if as_json:
        print_json({"store": redact(url, 500), "wrote": FILE if written else None})
        return
    print_text(f"the store is ready: {url}")
    _print_findings(findings)
    if write_config:
        print_text(f"wrote {FILE}" if written else f"{FILE} is there already and was left as it is")


def _line(url: str) -> str:
    """The sample's line about the store. A secret does not belong in a file that is easily committed."""
    shown = redact(url, 500)
    if shown == url:
        return f'store = "{url}"'
    return f'# Its URL has a password: give it by UNSTUCK_STORE or --store.\n# store = "{shown}"'


def _prepare(url: str, names: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    async def work() -> list[str]:
        async with JobTables.open(url, names) as tables:
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
            print_text(" ".join(line.strip() for line in text.splitlines() if not line.startswith("--")))
        print_text("the tables are ready")


@click.command()
@click.argument("url", required=False)
@table_option
@store_option
@json_option
@plainly
def doctor(url: str | None, tables: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Report what is wrong with a store, and what to do. Exit code 1 if anything is broken.

    With --table it looks at tables of yours: what is stuck, since when, and what a reaper would do. It only reads.
    """
    address = named(url or store)
    stuck: list[Stuck] = []
    try:
        if tables:
            findings, stuck = asyncio.run(_doctor_tables(address, tables))
        else:
            findings = with_jobs_at(address, Jobs.doctor)
    except StoreError as error:
        findings = [Finding("failure", f"the store cannot be opened: {error}", "fix that first")]
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
    broken = with_jobs(url or store, Jobs.verify)
    if as_json:
        print_json({"broken": broken})
    else:
        for line in broken:
            print_text(f"broken: {line}")
        print_text(f"{counted(len(broken), 'broken rule')}" if broken else "all rules hold")
    sys.exit(int(bool(broken)))


async def _doctor_tables(url: str, names: Sequence[str]) -> tuple[list[Finding], list[Stuck]]:
    async with JobTables.open(url, names) as tables:
        return await tables.doctor()


def _print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        print_text(
            f"{MARKS[finding.level]}  {finding.what}" + (f"\n         → {finding.fix}" if finding.fix else "")
        )


def _print_stuck(stuck: Sequence[Stuck]) -> None:
    head = (
        "TABLE",
        "ID",
        "STAGE",
        "HELD BY",
        "LAST SIGN",
        "LEASE ENDED",
        "TRIES",
        "A REAPER WOULD",
        "BECAUSE",
    )
    print_table(
        head,
        [
            (
                row.table,
                row.id,
                row.stage,
                row.held_by,
                _ago(row.last_sign),
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
    """Print a script for your shell that completes this command: eval "$(unstuck completion bash)" """
    from unstuck.cli import main

    found = get_completion_class(shell)
    if found is None:
        raise ConfigError(f"shell {shell!r} is not known: bash, zsh or fish")
    click.echo(found(main, {}, "unstuck", "_UNSTUCK_COMPLETE").source())
