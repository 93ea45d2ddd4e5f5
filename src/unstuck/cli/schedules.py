"""The verbs that show schedules, and make, change, pause, run and delete them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click
from click.core import ParameterSource

from unstuck import ConfigError, Enqueued, Jobs, ScheduleStatus, Unstuck
from unstuck.cli.apps import load_app
from unstuck.cli.enqueue import arguments_of
from unstuck.cli.filters import seconds
from unstuck.cli.output import (
    json_option,
    named,
    plainly,
    print_json,
    print_table,
    print_text,
    shown,
    store_option,
    usual_store,
    with_jobs,
    with_jobs_at,
)
from unstuck.config.checks import whole
from unstuck.text.phrases import counted

_app = click.option(
    "--app",
    metavar="MODULE:APP",
    help="The app that has the task: its queue, retries and timeout hold, and the arguments are checked.",
)
_cron = click.option("--cron", help="Minute, hour, day of month, month, day of week: '30 2 * * MON-FRI'")
_every = click.option("--every", type=seconds, help="A length of time, 1 s at least: 90s, 15m, 2h, 7d")
_args = click.option("--args", "payload", metavar="JSON", help="The arguments of the task as a JSON object.")
_priority = click.option("--priority", type=int, help="0 to 9, higher is sooner.")
_version = click.option("--version", type=int, help="Only if it still has this version; see show.")


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _tz(default: str | None) -> Decorator:
    return click.option("--tz", default=default, help="The time zone of --cron.  [default: UTC]")


def _catch_up(default: str | None) -> Decorator:
    choice = click.Choice(["last", "all", "none"])
    return click.option(
        "--catch-up", type=choice, default=default, help="What to do about missed slots.  [default: last]"
    )


@click.group(invoke_without_command=True)
@store_option
@json_option
@click.pass_context
@plainly
def schedules(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """Show every schedule: when it fires, its task, its next slot and its last one in UTC, and who fires it.

    "nobody" means that no worker is alive that fires it: start one, or it was removed from the code on purpose.
    """
    if ctx.invoked_subcommand is not None:
        if as_json or ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            raise ConfigError(
                f"options come last: unstuck schedules {ctx.invoked_subcommand} … --store URL --json"
            )
        return

    async def work(jobs: Jobs) -> tuple[list[ScheduleStatus], datetime]:
        return await jobs.schedules(), await jobs.now()

    found, now = with_jobs(store, work)
    if as_json:
        print_json(found)
        return
    print_table(
        ["SCHEDULE", "WHEN", "TASK", "NEXT", "LAST", "FIRED BY", "NOTE"],
        [
            (
                one.schedule,
                when(one),
                one.task,
                _short(one.next_slot, now),
                _short(one.last_slot, now),
                counted(len(one.fired_by), "worker") if one.fired_by else "nobody",
                _note(one),
            )
            for one in found
        ],
    )


@schedules.command()
@click.argument("name")
@store_option
@json_option
@plainly
def show(name: str, store: str | None, as_json: bool) -> None:
    """Show all that is known of a schedule."""

    async def work(jobs: Jobs) -> ScheduleStatus:
        return await jobs.schedule(name)

    _print(with_jobs(store, work), as_json=as_json)


@schedules.command()
@click.argument("name")
@click.option("--task", required=True, help="The name of the task.")
@_cron
@_every
@_tz("UTC")
@_catch_up("last")
@_args
@_app
@click.option("--queue", help="[default: default, or the task's own with --app]")
@_priority
@click.option("--max-attempts", type=int, help="[default: 3, or the task's own with --app]")
@store_option
@json_option
@plainly
def add(
    name: str,
    task: str,
    payload: str | None,
    app: str | None,
    priority: int | None,
    max_attempts: int | None,
    store: str | None,
    as_json: bool,
    **times: Any,
) -> None:
    """Make a schedule that all workers fire.

    unstuck schedules add daily --task report --cron '0 3 * * *'
    """
    if max_attempts is not None:
        whole("max-attempts", max_attempts, 1, 1000)

    async def work(jobs: Jobs) -> ScheduleStatus:
        return await jobs.add_schedule(
            name,
            task,
            arguments_of(payload or "{}", "--args"),
            retry=max_attempts,
            priority=priority or 0,
            **times,
        )

    _print(_with_tasks(store, app, work), as_json=as_json)


@schedules.command()
@click.argument("name")
@_cron
@_every
@_tz(None)
@_catch_up(None)
@_args
@_app
@click.option("--queue", help="Another queue for its jobs.")
@_priority
@_version
@store_option
@json_option
@plainly
def change(
    name: str, payload: str | None, app: str | None, store: str | None, as_json: bool, **changes: Any
) -> None:
    """Change a schedule that was made by `add`, in what is given."""
    if payload is None and all(value is None for what, value in changes.items() if what != "version"):
        raise ConfigError(
            "nothing is to be changed: give --cron, --every, --tz, --catch-up, --args, --queue or --priority"
        )

    async def work(jobs: Jobs) -> ScheduleStatus:
        given = None if payload is None else arguments_of(payload, "--args")
        return await jobs.change_schedule(name, arguments=given, **changes)

    _print(_with_tasks(store, app, work), as_json=as_json)


@schedules.command()
@click.argument("name")
@click.option("--why", default="paused by hand", show_default=True, help="Shown to everybody who looks.")
@store_option
@json_option
@plainly
def pause(name: str, why: str, store: str | None, as_json: bool) -> None:
    """Let no slot of a schedule fire until it is resumed."""

    async def work(jobs: Jobs) -> None:
        await jobs.pause_schedule(name, why)

    with_jobs(store, work)
    print_json({"schedule": name, "paused": why}) if as_json else print_text(
        f"schedule {name} is paused: {why}"
    )


@schedules.command()
@click.argument("name")
@store_option
@json_option
@plainly
def resume(name: str, store: str | None, as_json: bool) -> None:
    """Let a schedule fire again."""

    async def work(jobs: Jobs) -> bool:
        return await jobs.resume_schedule(name)

    lifted = with_jobs(store, work)
    if as_json:
        print_json({"schedule": name, "resumed": lifted})
        return
    print_text(f"schedule {name} fires again" if lifted else f"schedule {name} was not paused")


@schedules.command()
@click.argument("name")
@store_option
@json_option
@plainly
def run(name: str, store: str | None, as_json: bool) -> None:
    """Enqueue a job of a schedule now, and print its id. A pause does not matter."""

    async def work(jobs: Jobs) -> Enqueued:
        return await jobs.run_schedule(name)

    job = with_jobs(store, work)
    print_json({"schedule": name, "queue": job.queue, "id": job.id}) if as_json else click.echo(job.id)


@schedules.command()
@click.argument("name")
@_version
@store_option
@json_option
@plainly
def delete(name: str, version: int | None, store: str | None, as_json: bool) -> None:
    """Delete a schedule that no living worker declares. Jobs that it enqueued stay."""

    async def work(jobs: Jobs) -> None:
        await jobs.delete_schedule(name, version=version)

    with_jobs(store, work)
    print_json({"schedule": name, "deleted": True}) if as_json else print_text(f"schedule {name} is deleted")


def when(one: ScheduleStatus) -> str:
    """The times of a schedule as people write them: an expression with its time zone, or an interval."""
    if one.every is not None:
        for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
            if one.every % size == 0:
                return f"every {one.every / size:.0f}{unit}"
        return f"every {one.every:g}s"
    if one.cron is None:
        return ""
    return one.cron if one.tz == "UTC" else f"{one.cron} {one.tz}"


def _short(slot: datetime | None, now: datetime) -> str:
    """Today's times with seconds, others with their date."""
    text = shown(slot)
    return text[11:] if slot is not None and text[:10] == shown(now)[:10] else text[:16]


def _note(one: ScheduleStatus) -> str:
    notes = ["made at run time"] if not one.declared else []
    notes += [f"paused: {one.paused}"] if one.paused is not None else []
    return "; ".join([*notes, *([one.trouble.rstrip(".")] if one.trouble else [])])


def _print(one: ScheduleStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    facts = {
        "schedule": f"{one.schedule}, {'declared in code' if one.declared else 'made at run time'}",
        "when": when(one),
        "catch up": one.catch_up,
        "task": one.task,
        "queue": one.queue,
        "arguments": None if one.task is None else json.dumps(one.arguments, ensure_ascii=False),
        "next slot": shown(one.next_slot),
        "last slot": shown(one.last_slot),
        "paused": one.paused,
        "fired by": ", ".join(one.fired_by) or "nobody",
        "trouble": one.trouble,
        "version": one.version,
        "changed at": shown(one.changed_at),
    }
    for name, value in facts.items():
        if value not in (None, ""):
            print_text(f"{name:<11}{value}")


def _with_tasks(
    store: str | None, app: str | None, work: Callable[[Jobs], Awaitable[ScheduleStatus]]
) -> ScheduleStatus:
    """As ``with_jobs``; with an app its tasks are known, and its store is meant if no other is named."""
    if app is None:
        return with_jobs(store, work)
    known: Unstuck = load_app(app)
    url = known.url if store is None and not usual_store() else named(store)
    return with_jobs_at(url, work, tasks=known.tasks)
