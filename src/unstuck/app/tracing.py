"""Traces with OpenTelemetry. Nothing is imported or done unless the process itself has set up an SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from unstuck.protocol.classify import failure
from unstuck.protocol.job import Job

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

_NOTHING = nullcontext()


def current() -> str | None:
    """The traceparent of the span that is open here, to travel with a job; None without one."""
    if off() or not _api().get_current_span().get_span_context().is_valid:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def off() -> bool:
    """Whether OpenTelemetry is not even loaded in this process."""
    return "opentelemetry.trace" not in sys.modules


def span(job: Job) -> AbstractContextManager[None]:
    """Around a handler: a span of its own that continues the trace in which the job was enqueued."""
    tracer = _tracer()
    return _NOTHING if tracer is None else _traced(tracer, job)


def _tracer() -> Tracer | None:
    """None unless spans are recorded: a program that set up an SDK has imported the API."""
    if off():
        return None
    provider = _api().get_tracer_provider()
    if isinstance(provider, (_api().ProxyTracerProvider, _api().NoOpTracerProvider)):
        return None
    return _tracer_of(provider)


@cache
def _api() -> Any:
    # An import even though it is loaded, because another thread may be loading it at this moment.
    from opentelemetry import trace

    return trace


@lru_cache(maxsize=1)
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer("unstuck")


@contextmanager
def _traced(tracer: Tracer, job: Job) -> Iterator[None]:
    from opentelemetry.trace import SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # Without a trace of its own the job begins one: what is open in the worker has nothing to do with it.
    parent = TraceContextTextMapPropagator().extract({"traceparent": job.trace or ""})
    with tracer.start_as_current_span(
        f"process {job.task}",
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": "unstuck",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": job.queue,
            "messaging.message.id": job.id,
            "unstuck.task": job.task,
            "unstuck.attempt": job.attempts,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield
        except asyncio.CancelledError:
            raise  # the worker's decision, not an error of the handler
        except BaseException as error:
            # Not record_exception(): it would send the message and the stack with the secrets in them.
            why = failure(error)
            opened.set_status(StatusCode.ERROR, f"{why.code}: {why.message}")
            opened.set_attribute("error.type", why.code)
            opened.add_event(
                "exception",
                {
                    "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
                    "exception.message": why.message,
                    "exception.stacktrace": why.stack,
                },
            )
            raise
