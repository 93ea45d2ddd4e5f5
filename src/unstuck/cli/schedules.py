"""The verb that shows schedules and who fires them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from unstuck import Jobs
from unstuck.cli.output import json_option, plainly, print_json, print_table, shown, store_option, with_jobs

NAMED = 2  # workers of one schedule; the others are counted


@click.command()
@store_option
@json_option
@plainly
def schedules(store: str | None, as_json: bool) -> None:
    """Show every schedule, for which slot it fired last, and who fires it.

    "nobody" means that no worker alive has the app that declares it: start one, or it was removed on purpose.
    """
    found = with_jobs(store, Jobs.schedules)
    if as_json:
        print_json(found)
        return
    print_table(
        ["SCHEDULE", "LAST SLOT", "FIRED BY"],
        [(one.schedule, shown(one.last_slot), _by(one.fired_by)) for one in found],
    )


def _by(workers: Sequence[str]) -> str:
    if not workers:
        return "nobody"
    more = len(workers) - NAMED
    return ", ".join(workers[:NAMED]) + (f" and {more} more" if more > 0 else "")
