"""The verb that adds a job."""

from __future__ import annotations

import json
from typing import Any

import click

from unstuck import Enqueued, Jobs, PayloadError
from unstuck.cli.apps import load_app
from unstuck.cli.filters import instant, seconds, seconds_or_instant
from unstuck.cli.output import (
    json_option,
    plainly,
    print_json,
    store_option,
    usual_store,
    with_jobs,
)
from unstuck.config.checks import whole
from unstuck.config.job_options import Options
from unstuck.operations.new_job import job_by_name


@click.command()
@click.argument("task")
@click.argument("payload", default="{}")
@click.option(
    "--app",
    metavar="MODULE:APP",
    help="The app that has TASK: its queue, retries and timeout hold, and the arguments are checked.",
)
@click.option("--queue", help="[default: default, or the task's own with --app]")
@click.option("--key", help="A second job with this key in this queue is not created.")
@click.option("--again", is_flag=True, help="Start the finished job with this key over.")
@click.option(
    "--debounce",
    type=seconds,
    help="Run once, so long after the last call with this key: it replaces the job that waits.",
)
@click.option("--throttle", type=seconds, help="Drop further calls with this key for so long.")
@click.option("--priority", type=int, default=0, show_default=True, help="0 to 9, higher is sooner.")
@click.option(
    "--delay", type=seconds, default=0.0, help="How long to wait before it may run: 90 or 90s, 15m, 2h, 7d"
)
@click.option("--run-at", help="When it may run: 2027-01-31T08:00:00+01:00")
@click.option(
    "--expires",
    metavar="TIME",
    help="Fail it with the code expired if it has not started by then: 90, 15m or 2027-01-31T08:00:00+01:00",
)
@click.option("--max-attempts", type=int, help="[default: 3, or the task's own with --app]")
@store_option
@json_option
@plainly
def enqueue(
    task: str,
    payload: str,
    app: str | None,
    queue: str | None,
    key: str | None,
    again: bool,
    debounce: float | None,
    throttle: float | None,
    priority: int,
    delay: float,
    run_at: str | None,
    expires: str | None,
    max_attempts: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Enqueue TASK with its arguments as a JSON object: unstuck enqueue send '{"to": "ann"}'"""
    if max_attempts is not None:
        whole("max-attempts", max_attempts, 1, 1000)
    options = Options(
        key=key,
        again=again,
        debounce=debounce,
        throttle=throttle,
        priority=priority,
        delay=delay,
        run_at=instant(run_at),
        expires=seconds_or_instant(expires, "--expires"),
    )
    known = load_app(app) if app else None
    # Made before the store is opened, because that creates it: wrong input must leave nothing behind.
    job = job_by_name(
        known.tasks if known else {},
        task,
        arguments_of(payload, "payload"),
        options,
        queue=queue,
        retry=max_attempts,
    )
    if store is None and known and not usual_store():
        store = known.url

    async def add(jobs: Jobs) -> tuple[Enqueued, str]:
        note = await jobs.strange(job.queue) if await jobs.counts() else ""
        [answer] = await jobs.enqueue([job])
        return answer, note

    answer, note = with_jobs(store, add, create=True)
    if note and known is None:  # this is not an error: somebody has to be the first
        click.echo(f"unstuck: {note}; the job waits there all the same", err=True)
    if as_json:
        print_json(
            {"queue": answer.queue, "id": answer.id, "created": answer.created, "same_content": answer.same}
        )
    else:
        existed = (
            "" if answer.created else " (existed already" + (")" if answer.same else ", with other content)")
        )
        click.echo(f"{answer.id}{existed}")


def arguments_of(text: str, what: str) -> Any:
    """Strict JSON: what a lenient reader would silently change is refused."""
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise PayloadError(f"{what} is not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise PayloadError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise PayloadError(f"{what}: {error}") from None
    if not isinstance(found, dict):
        raise PayloadError(
            f'{what} is a JSON {type(found).__name__}: give the arguments as an object, {{"name": value}}'
        )
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names a key twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")
