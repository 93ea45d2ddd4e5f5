"""Verbs that look at jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from unstuck import Category, Event, Filter, Job, Jobs, Page, Status
from unstuck.cli.filters import note_unknown, queue_of_id
from unstuck.cli.output import (
    json_option,
    plainly,
    print_json,
    print_table,
    print_text,
    remind,
    shown,
    store_option,
    with_jobs,
)
from unstuck.text.phrases import counted

FIRST = ("why", "code", "message")  # of an event's details: the most important ones
STATES = [str(status) for status in Status]
limit_option = click.option("--limit", type=int, default=20, show_default=True, help="1 to 1000.")
cursor_option = click.option("--cursor", help="Where the last page ended.")


@click.command()
@click.option("--status", type=click.Choice(STATES))
@click.option("--queue")
@click.option("--task")
@limit_option
@cursor_option
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
    page = _page(which, limit, cursor, store)
    head = ["ID", "QUEUE", "TASK", "STATUS", "ATTEMPTS", "CREATED", "KEY", "NOTE"]
    rows = [
        (j.id, j.queue, j.task, j.status, _tries(j), shown(j.created_at), j.key, _note(j)) for j in page.jobs
    ]
    _print_page(page, head, rows, as_json)


@click.command()
@click.argument("id")
@queue_of_id
@store_option
@json_option
@plainly
def job(id: str, queue: str | None, store: str | None, as_json: bool) -> None:
    """Show one job, by its id or key: why it is where it is, and what happened to it."""

    async def work(jobs: Jobs) -> tuple[Job, str, list[Event]]:
        found = await jobs.get_by_id_or_key(id, queue)
        return found, await jobs.explain(found.id, found.queue), await jobs.history(found.ref)

    found, why, events = with_jobs(store, work)
    if as_json:
        print_json({"job": found, "explain": why, "events": events})
        return
    print_text(why)
    facts = {
        "id": found.id,
        "queue": found.queue,
        "task": found.task,
        "status": found.status,
        "attempts": f"{found.spent} of {found.max_attempts}, {counted(found.crashes, 'crash')}",
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
        "error": _error(found),
    }
    print_table(
        ["FIELD", "VALUE"], [(name, value) for name, value in facts.items() if value not in (None, "")]
    )
    if events:
        click.echo()
        print_table(["AT", "EVENT", "DETAILS"], [(shown(e.at), e.type, _details(e)) for e in events])
    remind(store, why)


@click.command()
@click.argument("id")
@queue_of_id
@store_option
@json_option
@plainly
def explain(id: str, queue: str | None, store: str | None, as_json: bool) -> None:
    """Explain why a job, named by its id or key, is where it is, with what can be done about it and the facts behind it."""

    async def work(jobs: Jobs) -> tuple[Job, str]:
        found = await jobs.get_by_id_or_key(id, queue)
        return found, await jobs.explain(found.id, found.queue)

    found, why = with_jobs(store, work)
    facts = {
        "status": found.status,
        "queue": found.queue,
        "task": found.task,
        "key": found.key,
        "lane": found.lane,
        "created": shown(found.created_at),
        "run at": shown(found.run_at),
        "expires": shown(found.expires_at),
        "attempts": f"{found.spent} of {found.max_attempts}",
        "crashes": found.crashes if found.max_crashes is None else f"{found.crashes} of {found.max_crashes}",
        "owner": found.owner,
        "lease until": shown(found.lease_until),
        "last beat": shown(found.heartbeat_at),
        "stage": found.stage,
        "error": _error(found),
    }
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    if as_json:
        print_json({"explain": why, "facts": known})
        return
    print_text(why)
    print_table(["FACT", "VALUE"], list(known.items()))
    remind(store, why)


@click.command()
@click.option("--queue")
@click.option("--task")
@click.option("--code", help="Only failures with this code.")
@click.option("--category", type=click.Choice([str(one) for one in Category]))
@limit_option
@cursor_option
@store_option
@json_option
@plainly
def dead(
    queue: str | None,
    task: str | None,
    code: str | None,
    category: str | None,
    limit: int,
    cursor: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List dead letters, the latest first: jobs that failed for good and were not cancelled."""
    kind = None if category is None else Category(category)
    page = _page(Filter(dead=True, queue=queue, task=task, code=code, category=kind), limit, cursor, store)
    head = ["ID", "QUEUE", "TASK", "KEY", "FAILED", "ATTEMPTS", "CRASHES", "CATEGORY", "WORKER", "WHY"]
    rows = [
        (
            j.id,
            j.queue,
            j.task,
            j.key,
            shown(j.finished_at),
            _tries(j),
            j.crashes,
            j.error.category if j.error else "",
            j.error.worker if j.error else "",
            _note(j),
        )
        for j in page.jobs
    ]
    _print_page(page, head, rows, as_json)


def _page(which: Filter, limit: int, cursor: str | None, store: str | None) -> Page:
    async def work(jobs: Jobs) -> Page:
        await note_unknown(jobs, which.queue)
        return await jobs.find(which, limit, cursor)

    return with_jobs(store, work)


def _print_page(page: Page, head: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    if as_json:
        print_json({"jobs": page.jobs, "cursor": page.cursor})
        return
    print_table(head, rows)
    if page.cursor:
        click.echo(f"more: --cursor {page.cursor}")


def _tries(job: Job) -> str:
    return f"{job.spent}/{job.max_attempts}"


def _error(job: Job) -> str:
    if (error := job.error) is None:
        return ""
    by = f" (attempt {error.attempt}, {error.worker})" if error.worker else ""
    return f"{error.category} {error.code}: {error.message}{by}"


def _note(job: Job) -> str:
    if job.status is Status.FAILED and job.error:
        return f"{job.error.code}: {job.error.message}"
    return "" if job.progress is None or job.status is Status.COMPLETED else f"{job.progress}"


def _details(event: Event) -> str:
    details = event.data["details"]
    ordered = sorted(details.items(), key=lambda of: of[0] not in FIRST)  # a table cuts what is long
    return ", ".join(f"{name} {value}" for name, value in ordered if value not in (None, ""))
