"""Verbs that prepare a store and look at it with a critical eye."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
from click.shell_completion import get_completion_class

from unstuck.cli.output import json_option, named, plainly, print_json, run_async, say, store_option
from unstuck.doctor import doctor as examine
from unstuck.errors import ConfigError, StoreError
from unstuck.redact import redact
from unstuck.settings import FILE
from unstuck.store import Finding, Store
from unstuck.stores import open_store

T = TypeVar("T")
MARKS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE"}
SAMPLE = """\
# Settings of `unstuck worker`; every one of them is optional. The environment and arguments win over this file.
store = "{store}"
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
@store_option
@json_option
@plainly
def init(store: str | None, as_json: bool) -> None:
    """Create or update the store's schema, and write a sample unstuck.toml if there is none."""
    url = named(store)

    async def work() -> None:
        async with open_store(url) as opened:
            await opened.migrate()

    run_async(work())
    file = Path(FILE)
    if written := not file.exists():
        file.write_text(SAMPLE.format(store=redact(url, 500)))
    if as_json:
        print_json({"store": redact(url, 500), "wrote": FILE if written else None})
        return
    say(f"the store is ready: {url}")
    say(f"wrote {FILE}" if written else f"{FILE} is there already and was left as it is")


@click.command()
@click.argument("url", required=False)
@store_option
@json_option
@plainly
def doctor(url: str | None, store: str | None, as_json: bool) -> None:
    """Look at a store and say what is wrong with it, and what to do. Exit code 1 if anything is broken."""
    try:
        findings = run_async(_open(named(url or store), examine))
    except StoreError as error:
        findings = [Finding("failure", f"the store cannot be opened: {error}", "mend that first")]
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            say(
                f"{MARKS[finding.level]}  {finding.what}"
                + (f"\n         → {finding.fix}" if finding.fix else "")
            )
    sys.exit(int(any(finding.level == "failure" for finding in findings)))


@click.command()
@click.argument("url", required=False)
@store_option
@json_option
@plainly
def verify(url: str | None, store: str | None, as_json: bool) -> None:
    """Check the rules that must always hold, reading only. Exit code 1 if one is broken."""
    broken = run_async(_open(named(url or store), lambda opened: opened.verify()))
    if as_json:
        print_json({"broken": broken})
    else:
        for line in broken:
            say(f"broken: {line}")
        say(f"{len(broken)} rules are broken" if broken else "all rules hold")
    sys.exit(int(bool(broken)))


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
    async with open_store(url) as store:
        return await look(store)
