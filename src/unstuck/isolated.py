"""What happens inside the child that runs an isolated job. Speaks to the worker over a socket, in frames."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from inspect import iscoroutine, unwrap
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from unstuck.call import Call
from unstuck.classifier import Class, classify, failure
from unstuck.context import Context, enter
from unstuck.errors import ConfigError, Permanent, Snooze
from unstuck.frames import pack
from unstuck.handler import Handler
from unstuck.model import Category, Failure, Job, NewJob
from unstuck.payload import record

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
importing = ContextVar("importing", default=False)  # set in a nursery, not in the children that it forks
UNTIMELY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # kept from a nursery until it is ready for them


class Order(Struct):
    """What the worker tells a child: its job, and how long leases are."""

    job: Job
    lease: float
    stages: Mapping[str, float]


class Report(Struct):
    """What a child tells its worker: one word said by the handler, or how it ended."""

    word: str
    value: Any = None


class Ending(Struct):
    """How a handler ended that raised."""

    failure: Failure
    found: Class
    snooze: float | None = None


class Remote(Exception):
    """An exception that was raised in a child, as far as it can be told."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.failure.message)
        self.ending = ending


def perform_alone(handler: Handler, lifespans: Sequence[Lifespan], order: Order, sock: socket.socket) -> None:
    """Run the handler inside of the app's lifespans and tell everything it says, up to its end."""

    child = os.getpid()

    def tell(word: str, value: Any) -> None:
        if os.getpid() != child:
            os._exit(1)  # the handler forked, and this one comes back: only the first speaks for the job
        sock.sendall(pack(Report(word, value)))

    context = Context(order.job, order.lease, order.stages)
    context.listener = tell
    try:
        arguments = handler.arguments.unpack(order.job.payload)
    except Exception as error:  # noqa: BLE001 - models run code of their own
        tell("raised", _invalid(error, "invalid_payload"))
        return
    try:
        result = contextvars.copy_context().run(_call, handler, lifespans, arguments, context)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the job's failure
        tell("raised", _ending(error))
        return
    try:
        answer = record(result)
    except Exception as error:  # noqa: BLE001 - a result runs code of its own when it is written down
        tell("raised", _invalid(error, "invalid_result"))
        return
    tell("result", answer if answer is None else bytes(answer).decode())


def refuse(error: Exception, order: Order, sock: socket.socket) -> None:
    """The handler could not even be imported here."""
    place = f"task {order.job.task!r} cannot be loaded in a process of its own"
    why = Permanent(f"{place}: {type(error).__name__}: {error}", code="not_importable")
    sock.sendall(pack(Report("raised", _ending(why))))


def refuse_import() -> None:
    """Say what is wrong with a program that starts a worker when it is imported."""
    if importing.get():
        raise ConfigError(
            "the processes of isolated jobs import this program, which must not start a worker then: "
            'put its start under if __name__ == "__main__":'
        )


async def enter_lifespans(stack: AsyncExitStack, lifespans: Sequence[Lifespan]) -> None:
    """Enter them in order; an error has a note that says whose it is."""
    for lifespan in lifespans:
        function: Any = unwrap(lifespan)
        code = getattr(function, "__code__", None)
        name = getattr(function, "__name__", type(function).__name__)
        line = f":{code.co_firstlineno}" if code else ""
        who = f"lifespan {name!r} ({getattr(function, '__module__', '')}{line})"
        try:
            manager = lifespan()
            if not hasattr(type(manager), "__aenter__"):
                if iscoroutine(manager):
                    manager.close()
                raise ConfigError(
                    f"{who} gives a value of type {type(manager).__name__}, no asynchronous context manager: "
                    "write @asynccontextmanager under @app.lifespan, and yield where the jobs run"
                )
            await stack.enter_async_context(manager)
        except Exception as error:
            error.add_note(f"{who} failed")
            raise


def apply(report: Report, context: Context) -> None:
    """Say in the worker what the handler said in the child."""
    match report.word:
        case "progress":
            context.progress(report.value)
        case "stage":
            context.stage(report.value[0], expected=report.value[1])
        case "bind":
            context.bind(**report.value)
        case "then":
            context.then(Call(convert(report.value, NewJob)))
        case word:
            raise ValueError(f"a child said {word!r}, which has no meaning")


def _call(
    handler: Handler, lifespans: Sequence[Lifespan], arguments: dict[str, Any], context: Context
) -> Any:
    enter((context,))
    if handler.batch:
        [(name, item)] = arguments.items()
        arguments = {name: [item]}
    if handler.is_async or lifespans:
        result = asyncio.run(_inside(lifespans, handler, arguments))
    else:
        result = handler.answer(handler.function(**arguments))
    if handler.batch:
        [result] = handler.answers(result, 1)
        if isinstance(result, BaseException):
            raise result
    return result


async def _inside(lifespans: Sequence[Lifespan], handler: Handler, arguments: dict[str, Any]) -> Any:
    async with AsyncExitStack() as stack:
        await enter_lifespans(stack, lifespans)
        if handler.is_async:
            return await handler.function(**arguments)
        # In the main thread, where signals can be handled.
        return handler.answer(handler.function(**arguments))


def _ending(error: BaseException) -> Ending:
    snooze = error.seconds if isinstance(error, Snooze) else None
    return Ending(failure(error), classify(error), snooze)


def _invalid(error: Exception, code: str) -> Ending:
    """Failed for good, whatever the error would mean elsewhere."""
    why = replace(failure(error), category=Category.PERMANENT, code=code)
    return Ending(why, Class(Category.PERMANENT, code))
