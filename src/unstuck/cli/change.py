"""Verbs that change jobs: one by one by their ids, or many by a filter, counted first and confirmed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import click

from unstuck import ConfigError, Filter, Jobs, Status
from unstuck.cli.filters import Chosen, chosen, instant, must_know, queue_of_id
from unstuck.cli.output import json_option, plainly, print_json, print_text, store_option, with_jobs
from unstuck.config.checks import number, whole
from unstuck.text.phrases import counted

CANCELLED, EXPIRED = "cancelled", "expired"  # codes
Change = Callable[[Jobs], Awaitable[int]]
dry_run = click.option(
    "--dry-run", is_flag=True, help="Print how many jobs that would be, and change nothing."
)
yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@chosen(category=True)
@dry_run
@yes
@store_option
@json_option
@plainly
def retry(choice: Chosen, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Put finished jobs back into their queues, with fresh attempts: those named, or all dead letters that match.

    Cancelled and expired jobs are none: name their --code, cancelled or expired.
    """
    # Jobs that were cancelled or expired are no dead letters: only who names their code means them.
    which = choice.filter(Status.FAILED, dead=not choice.ids and choice.code not in (EXPIRED, CANCELLED))
    _carry_out("retried", choice, which, lambda jobs: jobs.retry(which), dry_run, yes, store, as_json)


@click.command()
@chosen(category=False)
@dry_run
@yes
@store_option
@json_option
@plainly
def cancel(choice: Chosen, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Cancel jobs that are not finished: those named, or all waiting ones that match. A running one is stopped."""
    which = choice.filter(None if choice.ids else Status.PENDING)

    async def change(jobs: Jobs) -> int:
        if choice.ids:
            return await jobs.cancel(choice.ids, choice.queue)
        return await jobs.cancel_matching(which)

    _carry_out("cancelled", choice, which, change, dry_run, yes, store, as_json)


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--owner", required=True, help="The worker that holds them, as `unstuck job` shows it.")
@store_option
@json_option
@plainly
def release(ids: tuple[str, ...], owner: str, store: str | None, as_json: bool) -> None:
    """Give back, unspent, what a worker holds: the jobs named, or all it has. Jobs of others are left alone."""

    async def change(jobs: Jobs) -> int:
        held = ids or await jobs.held_by(owner)
        return await jobs.release_jobs(held, owner)

    _print_count("released", with_jobs(store, change), as_json)


@click.command()
@click.argument("ids", nargs=-1, required=True)
@queue_of_id
@click.option("--priority", type=int, help="0 to 9, higher is sooner.")
@click.option("--run-at", help="When it may run: 2027-01-31T08:00:00+01:00, or now")
@store_option
@json_option
@plainly
def edit(
    ids: tuple[str, ...],
    queue: str | None,
    priority: int | None,
    run_at: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Give jobs that wait another priority or another time."""
    if priority is None and run_at is None:
        raise ConfigError("nothing to edit: give --priority, --run-at or both")
    if priority is not None:
        whole("priority", priority, 0, 9)
    when = instant(run_at)

    async def change(jobs: Jobs) -> int:
        for id_ in ids:
            job = await jobs.get(id_, queue)
            if job.status is not Status.PENDING:
                raise ConfigError(f"job {id_} is {job.status}: only jobs that wait can be edited")
        return await jobs.edit(ids, queue, priority=priority, run_at=when)

    _print_count("edited", with_jobs(store, change), as_json)


@click.command()
@click.option(
    "--days", type=float, default=14.0, show_default=True, help="Finished more than so many days ago."
)
@click.option("--queue", help="Only this queue.")
@dry_run
@yes
@store_option
@json_option
@plainly
def clean(days: float, queue: str | None, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Delete finished jobs, completed and failed ones alike, with their events."""
    number("days", days, 0.0, 3660.0, "days")
    which = Filter(queue=queue, older_than=days * 86400)
    choice = Chosen(queue=queue)
    _carry_out(
        "deleted", choice, which, lambda jobs: jobs.cleanup_jobs(days, queue), dry_run, yes, store, as_json
    )


def _carry_out(
    done: str,
    choice: Chosen,
    which: Filter,
    change: Change,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Change the jobs that are named; many that match only after their number was shown and confirmed."""

    async def check(jobs: Jobs) -> None:
        if not choice.ids:
            await must_know(jobs, choice.queue)
        for id_ in choice.ids:
            choice.must_fit(await jobs.get(id_, choice.queue), done)

    async def asked(jobs: Jobs) -> Counter[str]:
        await check(jobs)
        return Counter({"": len(choice.ids)}) if choice.ids else await jobs.matching(which)

    if dry_run or not (choice.ids or yes):
        found = with_jobs(store, asked)
        if not found and not dry_run:
            _print_count(done, 0, as_json)
            return
        count = counted(found.total(), "job")
        kinds = ", ".join(f"{number} {code}" for code, number in found.most_common(10) if code)
        of = f" ({kinds})" if kinds else ""
        if dry_run:
            print_json({f"would_be_{done}": found.total()}) if as_json else print_text(
                f"{count} would be {done}{of}"
            )
            return
        if not sys.stdin.isatty():
            raise ConfigError(f"{count} would be {done}{of}: use --yes to do it, or --dry-run to see only")
        click.confirm(f"{count} will be {done}{of}. Go on?", abort=True, err=True)
    else:
        with_jobs(store, check)
    _print_count(done, with_jobs(store, change), as_json)


def _print_count(done: str, count: int, as_json: bool) -> None:
    print_json({done: count}) if as_json else print_text(f"{done} {counted(count, 'job')}")
