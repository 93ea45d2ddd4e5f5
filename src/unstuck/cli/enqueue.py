"""The verb that puts a job in."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from unstuck.cli.filters import instant, seconds
from unstuck.cli.output import json_option, plainly, print_json, store_option, with_jobs
from unstuck.environ import default_retry
from unstuck.errors import PayloadError
from unstuck.ids import digest, keyed_id, new_id
from unstuck.jobs import Jobs
from unstuck.model import NewJob
from unstuck.options import Options
from unstuck.payload import encode
from unstuck.policy import queue_name, task_name, whole
from unstuck.store import Enqueued


@click.command()
@click.argument("task")
@click.argument("payload", default="{}")
@click.option("--queue", default="default", show_default=True)
@click.option("--key", help="A second job with this key in this queue is not created.")
@click.option("--again", is_flag=True, help="Start the finished job with this key over.")
@click.option("--priority", type=int, default=0, show_default=True, help="0 to 9, higher is sooner.")
@click.option(
    "--delay", type=seconds, default=0.0, help="How long to wait before it may run: 90 or 90s, 15m, 2h, 7d"
)
@click.option("--run-at", help="When it may run: 2027-01-31T08:00:00+01:00")
@click.option("--max-attempts", type=int, help="Without it, what JOB_MAX_ATTEMPTS says, or 3.")
@store_option
@json_option
@plainly
def enqueue(
    task: str,
    payload: str,
    queue: str,
    key: str | None,
    again: bool,
    priority: int,
    delay: float,
    run_at: str | None,
    max_attempts: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Enqueue TASK with its arguments as a JSON object: unstuck enqueue send '{"to": "ann"}'"""
    options = Options(key=key, again=again, priority=priority, delay=delay, run_at=instant(run_at))
    text = encode(_arguments(payload), "payload")
    queue_name(queue)
    usual = default_retry(os.environ)
    job = NewJob(
        queue=queue,
        task=task_name(task),
        id=new_id() if key is None else keyed_id(queue, key),
        payload=json.loads(text),
        key=key,
        again=again,
        digest=None if key is None else digest(task, text),
        priority=options.priority,
        delay=options.delay,
        run_at=options.run_at,
        max_attempts=usual.attempts if max_attempts is None else whole("max-attempts", max_attempts, 1, 1000),
        backoff=usual.backoff,
    )

    async def work(jobs: Jobs) -> tuple[Enqueued, str]:
        told = await jobs.strange(queue) if await jobs.counts() else ""
        [answer] = await jobs.enqueue([job])
        return answer, told

    answer, told = with_jobs(store, work, new=True)
    if told:  # it is no error: somebody has to be the first
        click.echo(f"unstuck: {told}; the job waits there all the same", err=True)
    if as_json:
        print_json({"queue": queue, "id": answer.id, "created": answer.created, "same_content": answer.same})
    else:
        existed = (
            "" if answer.created else " (existed already" + (")" if answer.same else ", with other content)")
        )
        click.echo(f"{answer.id}{existed}")


def _arguments(text: str) -> Any:
    """Strict JSON: what a lenient reader would silently change is refused."""
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise PayloadError(f"payload is no JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise PayloadError("payload is nested too deeply") from None
    except ValueError as error:
        raise PayloadError(f"payload: {error}") from None
    if not isinstance(found, dict):
        raise PayloadError(
            f'payload is a JSON {type(found).__name__}: give the arguments as an object, {{"name": value}}'
        )
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names a key twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number JSON can say")
