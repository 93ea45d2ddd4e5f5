"""Verbs that put jobs in and look at them."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from unstuck.cli.filters import instant
from unstuck.cli.output import (
    json_option,
    plainly,
    print_json,
    print_table,
    say,
    shown,
    store_option,
    with_jobs,
)
from unstuck.environ import default_retry
from unstuck.errors import PayloadError
from unstuck.ids import digest, keyed_id, new_id
from unstuck.jobs import Jobs
from unstuck.model import Event, Filter, Job, NewJob, Status
from unstuck.options import Options
from unstuck.payload import encode
from unstuck.policy import queue_name, task_name, whole
from unstuck.store import Enqueued, Page

STATES = [str(status) for status in Status]


@click.command()
@click.argument("task")
@click.argument("payload", default="{}")
@click.option("--queue", default="default", show_default=True)
@click.option("--key", help="A second job with this key in this queue is not created.")
@click.option("--again", is_flag=True, help="Start the finished job with this key over.")
@click.option("--priority", type=int, default=0, show_default=True, help="0 to 9, higher is sooner.")
@click.option("--delay", type=float, default=0.0, help="Seconds to wait before it may run.")
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

    async def work(jobs: Jobs) -> Enqueued:
        [answer] = await jobs.enqueue([job])
        return answer

    answer = with_jobs(store, work, new=True)
    if as_json:
        print_json({"queue": queue, "id": answer.id, "created": answer.created, "same_content": answer.same})
    else:
        told = (
            "" if answer.created else " (existed already" + (")" if answer.same else ", with other content)")
        )
        click.echo(f"{answer.id}{told}")


@click.command()
@click.option("--status", type=click.Choice(STATES))
@click.option("--queue")
@click.option("--task")
@click.option("--limit", type=int, default=20, show_default=True, help="1 to 1000.")
@click.option("--cursor", help="Where the last page ended.")
@store_option
@json_option
@plainly
def jobs(
    status: str | None,
    queue: str | None,
    task: str | None,
    limit: int,
    cursor: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    which = Filter(status=Status(status) if status else None, queue=queue, task=task)

    async def work(jobs: Jobs) -> Page:
        return await jobs.find(which, limit, cursor)

    page = with_jobs(store, work)
    if as_json:
        print_json({"jobs": page.jobs, "cursor": page.cursor})
        return
    print_table(
        ["ID", "QUEUE", "TASK", "STATUS", "ATTEMPTS", "CREATED", "NOTE"],
        [
            (j.id, j.queue, j.task, j.status, f"{j.attempts}/{j.max_attempts}", shown(j.created_at), _note(j))
            for j in page.jobs
        ],
    )
    if page.cursor:
        click.echo(f"more: --cursor {page.cursor}")


@click.command()
@click.argument("id")
@click.option("--queue", help="Needed only if two queues have a job with this id.")
@store_option
@json_option
@plainly
def job(id: str, queue: str | None, store: str | None, as_json: bool) -> None:
    """Show one job, why it is where it is, and what happened to it."""

    async def work(jobs: Jobs) -> tuple[Job, str, list[Event]]:
        found = await jobs.get(id, queue)
        return found, await jobs.explain(id, found.queue), await jobs.events(job=found.ref)

    found, why, events = with_jobs(store, work)
    if as_json:
        print_json({"job": found, "explain": why, "events": events})
        return
    say(why)
    facts = {
        "id": found.id,
        "queue": found.queue,
        "task": found.task,
        "status": found.status,
        "attempts": f"{found.attempts} of {found.max_attempts}, {found.crashes} crashes",
        "priority": found.priority,
        "key": found.key,
        "created": shown(found.created_at),
        "run at": shown(found.run_at),
        "started": shown(found.started_at),
        "finished": shown(found.finished_at),
        "owner": found.owner,
        "progress": found.progress,
        "payload": found.payload,
        "result": found.result,
        "error": f"{found.error.category} {found.error.code}: {found.error.message}" if found.error else None,
    }
    print_table(
        ["FIELD", "VALUE"], [(name, value) for name, value in facts.items() if value not in (None, "")]
    )
    if events:
        click.echo()
        print_table(["AT", "EVENT", "DETAILS"], [(shown(e.at), e.type, _details(e)) for e in events])


@click.command()
@click.argument("id")
@click.option("--queue", help="Needed only if two queues have a job with this id.")
@store_option
@json_option
@plainly
def explain(id: str, queue: str | None, store: str | None, as_json: bool) -> None:
    """Say in one sentence why a job is not running, and the facts behind it."""

    async def work(jobs: Jobs) -> tuple[Job, str]:
        found = await jobs.get(id, queue)
        return found, await jobs.explain(id, found.queue)

    found, why = with_jobs(store, work)
    facts = {
        "status": found.status,
        "queue": found.queue,
        "task": found.task,
        "run at": shown(found.run_at),
        "attempts": f"{found.attempts} of {found.max_attempts}",
        "crashes": found.crashes,
        "owner": found.owner,
        "lease until": shown(found.lease_until),
        "last beat": shown(found.heartbeat_at),
        "stage": found.stage,
    }
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    if as_json:
        print_json({"explain": why, "facts": known})
        return
    say(why)
    print_table(["FACT", "VALUE"], list(known.items()))


@click.command()
@click.option("--queue")
@click.option("--limit", type=int, default=20, show_default=True, help="1 to 1000.")
@click.option("--cursor", help="Where the last page ended.")
@store_option
@json_option
@plainly
def dead(queue: str | None, limit: int, cursor: str | None, store: str | None, as_json: bool) -> None:
    """List dead letters, the latest first: jobs that failed for good and were not cancelled."""

    async def work(jobs: Jobs) -> Page:
        return await jobs.find(Filter(dead=True, queue=queue), limit, cursor)

    page = with_jobs(store, work)
    if as_json:
        print_json({"jobs": page.jobs, "cursor": page.cursor})
        return
    print_table(
        ["ID", "QUEUE", "TASK", "FAILED", "ATTEMPTS", "CRASHES", "CATEGORY", "WHY"],
        [
            (
                j.id,
                j.queue,
                j.task,
                shown(j.finished_at),
                f"{j.attempts}/{j.max_attempts}",
                j.crashes,
                j.error.category if j.error else "",
                _note(j),
            )
            for j in page.jobs
        ],
    )
    if page.cursor:
        click.echo(f"more: --cursor {page.cursor}")


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


def _note(job: Job) -> str:
    if job.status is Status.FAILED and job.error:
        return f"{job.error.code}: {job.error.message}"
    return "" if job.progress is None or job.status is Status.COMPLETED else f"{job.progress}"


def _details(event: Event) -> str:
    details = event.data["details"]
    return ", ".join(f"{name} {value}" for name, value in details.items() if value not in (None, ""))
