"""Options that choose jobs, by ids or by a filter, and texts that stand for times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from unstuck import Category, ConfigError, Filter, Job, Jobs, Status
from unstuck.config.checks import queue_name, task_name
from unstuck.text.phrases import command

FINISHED = (Status.COMPLETED, Status.FAILED)
queue_of_id = click.option("--queue", help="Needed only if two queues have a job with this id.")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Chosen(Struct, frozen=True, kw_only=True):
    """Which jobs a person named."""

    ids: tuple[str, ...] = ()
    queue: str | None = None
    task: str | None = None
    code: str | None = None
    category: str | None = None
    older_than: str | None = None
    all: bool = False

    def filter(self, status: Status | None, *, dead: bool = False) -> Filter:
        """The same for ``Jobs``. All jobs are chosen by --all only, not by leaving everything out."""
        given = (self.queue, self.task, self.code, self.category, self.older_than)
        if not self.ids and not self.all and not any(given):
            raise ConfigError("no job is named: give ids, a filter such as --queue, or --all")
        if self.ids and (self.all or any(given[1:])):
            raise ConfigError("ids and a filter exclude each other: give one of them")
        return Filter(
            ids=self.ids or None,
            queue=None if self.queue is None else queue_name(self.queue),
            task=None if self.task is None else task_name(self.task),
            code=self.code,
            category=None if self.category is None else Category(self.category),
            older_than=None if self.older_than is None else span(self.older_than),
            status=None if self.ids else status,
            dead=dead,
        )

    def must_fit(self, job: Job, done: str) -> None:
        """Refuse a job that was named by its id if the change cannot be made to it."""
        finished = job.status in FINISHED
        if done == "retried" and not finished:
            raise ConfigError(
                f"job {job.id} is {job.status}: only finished jobs can be retried; why it is so: "
                + command("explain", job.id, queue=job.queue)
            )
        if done == "cancelled" and finished:
            raise ConfigError(f"job {job.id} is {job.status} already: only unfinished jobs can be cancelled")


def chosen(*, category: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name jobs; the verb gets them as one value."""
    options = [
        click.argument("ids", nargs=-1),
        click.option("--queue", help="Only this queue."),
        click.option("--task", help="Only this task."),
        click.option("--all", is_flag=True, help="All of them."),
    ]
    if category:
        options += [
            click.option("--code", help="Only failures with this code."),
            click.option("--category", type=click.Choice([str(one) for one in Category])),
            click.option("--older-than", help="Finished longer ago than this: 90s, 15m, 2h, 7d"),
        ]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(**given: Any) -> Any:
            choice = Chosen(**{name: given.pop(name) for name in Chosen.__struct_fields__ if name in given})
            return function(choice=choice, **given)

        for option in reversed(options):
            call = option(call)
        return call

    return decorate


async def must_know(jobs: Jobs, queue: str | None, otherwise: str = "") -> None:
    """Refuse to change a queue that nobody has ever used: its name is probably misspelt."""
    if why := await jobs.strange(queue):
        raise ConfigError(why + otherwise)


async def note_unknown(jobs: Jobs, queue: str | None) -> None:
    """For verbs that only look: print a note if nobody has ever used the queue."""
    if note := await jobs.strange(queue):
        click.echo(f"unstuck: {note}", err=True)


def span(text: str) -> float:
    """Seconds, from what people write: 90s, 15m, 2h, 7d."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if not found:
        raise ConfigError(f"{text[:40]!r} is not a length of time: write 90s, 15m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def seconds(text: str) -> float:
    """The type of an option that is a length of time: a number, or what people write."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return span(text)
    except ConfigError as error:
        raise click.BadParameter(f"{error}, or a number of seconds") from None


def seconds_or_instant(text: str | None, option: str) -> float | datetime | None:
    """A length of time or a time, as the value of this option."""
    if text is None:
        return None
    try:
        return seconds(text)
    except click.BadParameter:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is neither a length of time nor a time: write 90, 15m, 2h or 2027-01-31T08:00:00+01:00"
        ) from None


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text == "now":
        return datetime.now(UTC)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--run-at {text!r} is not a time: write it as 2027-01-31T08:00:00+01:00") from None
