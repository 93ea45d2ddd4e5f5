"""Tasks as Django's documentation shows them."""

import os
import signal
from typing import Any

from django.db import connection
from django.tasks import TaskContext, task

from unstuck import Permanent


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=50)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@task(takes_context=True)
def attempt(context: TaskContext) -> list[Any]:
    if context.attempt == 1:
        raise ValueError("not at first")
    return [context.attempt, context.task_result.id]


@task(takes_context=True)
async def async_attempt(context: TaskContext) -> int:
    return int(context.attempt)


@task(takes_context=True)
def kill(context: TaskContext) -> int:
    """Takes its worker with it, at first."""
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(context.attempt)


@task
def refuse() -> None:
    raise Permanent("no such order")


@task
def strange() -> object:
    return object()


@task
def much() -> str:
    return "x" * 2_000_000


@task
def session() -> int:
    """Which of the server's processes it was connected to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task(backend="named")
def named() -> str:
    return "named"


@task(backend="elsewhere")
def elsewhere() -> str:
    return "elsewhere"
