"""What happens inside the child that runs an isolated job. It sends messages to the worker over a socket."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from inspect import iscoroutine, unwrap
from typing import Any

from msgspec import Struct, convert, json

from unstuck.app.call import Call
from unstuck.app.context import Context, enter
from unstuck.app.handler import Handler
from unstuck.app.hooks import Lifespan
from unstuck.app.payload import record
from unstuck.protocol.classify import Class, TaskErrors, classify, failure, unfit
from unstuck.protocol.errors import ConfigError, Permanent, Snooze
from unstuck.protocol.job import Category, Failure, Job, NewJob
from unstuck.worker.dependencies import around
from unstuck.worker.forks import end_unless, no_child_turns_this_loop
from unstuck.worker.isolation.wire import pack, receive

importing = ContextVar("importing", default=False)  # set in a fork server, not in the children that it forks
UNTIMELY = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
)  # kept from a fork server until it is ready for them


class Order(Struct):
    """What the worker sends to a child: its job, and how long leases are."""

    job: Job
    lease: float
    stages: Mapping[str, float]
    rated: bool = (
        False  # it asks before it calls the handler, each time with a ``Report`` of "ready" or "late"
    )


class Report(Struct):
    """What a child sends to its worker: one report of the handler, or how it ended."""

    word: str
    value: Any = None


class Raised(Struct):
    """How a handler ended that raised."""

    failure: Failure
    found: Class
    snooze: float | None = None


class Remote(Exception):
    """An exception that was raised in a child, as far as it can be sent."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.failure.message)
        self.raised = raised


def perform_alone(handler: Handler, lifespans: Sequence[Lifespan], order: Order, sock: socket.socket) -> None:
    """Run the handler inside of the app's lifespans and send all that it reports, up to its end."""

    child = os.getpid()

    def send(word: str, value: Any) -> None:
        end_unless(child)  # only this process reports for the job; a fork of it must not
        sock.sendall(pack(Report(word, value)))

    context = Context(order.job, order.lease, order.stages)
    context.listener, context.alone = send, True
    try:
        arguments = handler.read(order.job)
    except BaseException as error:  # noqa: BLE001 - models run code of their own
        send("raised", _invalid(error, "invalid_payload"))
        return
    gate = Gate(sock, send) if order.rated else None
    try:
        result = contextvars.copy_context().run(_call, handler, lifespans, arguments, context, gate)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the job's failure
        send("raised", _raised(error, handler.errors))
        return
    try:
        answer = record(result)
    except BaseException as error:  # noqa: BLE001 - a result runs code of its own when it is written down
        send("raised", _invalid(error, "invalid_result"))
        return
    send("result", answer if answer is None else bytes(answer).decode())


def refuse(error: Exception, order: Order, sock: socket.socket) -> None:
    """The handler could not even be imported here."""
    place = f"task {order.job.task!r} cannot be loaded in a process of its own"
    why = Permanent(f"{place}: {type(error).__name__}: {error}", code="not_importable")
    sock.sendall(pack(Report("raised", _raised(why))))


def refuse_import() -> None:
    """Raise an error that explains what is wrong with a program that starts a worker when it is imported."""
    if importing.get():
        raise ConfigError(
            "the processes of isolated jobs import this program, which must not start a worker then: "
            'put its start under if __name__ == "__main__":'
        )


async def enter_lifespans(stack: AsyncExitStack, lifespans: Sequence[Lifespan]) -> None:
    """Enter them in order; an error gets a note that names the lifespan."""
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
    """Repeat in the worker what the handler reported in the child."""
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
            raise ValueError(f"a child sent {word!r}, which is not a known report")


class Gate:
    """What a handler of a queue that has a rate is called behind: the worker answers until when that may be.

    The clock is looked at here, because nobody knows how long the birth of a process or its lifespans take.
    """

    def __init__(self, sock: socket.socket, send: Callable[[str, Any], None]) -> None:
        self._sock = sock
        self._send = send

    def wait(self) -> None:
        self._send("ready", None)
        while not self._in_time():
            self._send("late", None)

    async def wait_async(self) -> None:
        """The same, while what the lifespans started goes on."""
        self._send("ready", None)
        loop = asyncio.get_running_loop()
        while True:
            answered = asyncio.Event()
            loop.add_reader(self._sock, answered.set)
            try:
                await answered.wait()
            finally:
                loop.remove_reader(self._sock)
            if self._in_time():
                return
            self._send("late", None)

    def _in_time(self) -> bool:
        text, _ = receive(self._sock)
        if not text:
            raise ConnectionResetError("the worker is gone")
        return time.monotonic() <= json.decode(text, type=float)


def _call(
    handler: Handler,
    lifespans: Sequence[Lifespan],
    arguments: dict[str, Any],
    context: Context,
    gate: Gate | None,
) -> Any:
    enter((context,))
    if handler.batch:
        [(name, item)] = arguments.items()
        arguments = {name: [item]}
    if handler.is_async or lifespans or handler.needs:
        result = asyncio.run(_inside(lifespans, handler, arguments, gate))
    else:
        if gate is not None:
            gate.wait()
        result = handler.answer(handler.function(**arguments))
    if handler.batch:
        [result] = handler.answers(result, 1)
        if isinstance(result, BaseException):
            raise result
    return result


async def _inside(
    lifespans: Sequence[Lifespan], handler: Handler, arguments: dict[str, Any], gate: Gate | None
) -> Any:
    pid = os.getpid()

    async def call(values: dict[str, Any]) -> Any:
        if gate is not None:
            await gate.wait_async()
        if handler.is_async:
            return await handler.function(**arguments, **values)
        # In the main thread, where signals can be handled.
        return handler.answer(handler.function(**arguments, **values))

    async with AsyncExitStack() as stack:
        stack.enter_context(no_child_turns_this_loop())
        await enter_lifespans(stack, lifespans)
        try:
            return await around(handler.needs, _at_once, call)
        finally:
            end_unless(pid)


async def _at_once(call: Callable[[], Any]) -> Any:
    """Here, where a call may block."""
    return call()


def _raised(error: BaseException, of_task: TaskErrors = TaskErrors()) -> Raised:  # noqa: B008 - immutable
    snooze = error.seconds if isinstance(error, Snooze) else None
    return Raised(failure(error, of_task), classify(error, of_task), snooze)


def _invalid(error: BaseException, code: str) -> Raised:
    return Raised(unfit(error, code), Class(Category.PERMANENT, code))
