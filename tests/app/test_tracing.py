"""Traces: a job continues the trace in which it was enqueued."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from unstuck import Job, Permanent, Status
from unstuck.app import tracing

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK that keeps what it is given, for this test only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def job(of: str | None = None) -> Job:
    return Job(
        queue="mail",
        id="j1",
        task="send",
        status=Status.PROCESSING,
        created_at=NOW,
        run_at=NOW,
        attempts=2,
        trace=of,
    )


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    [span] = spans.get_finished_spans()
    return span


def test_a_handler_gets_a_span_with_the_names_of_the_messaging_conventions(
    spans: InMemorySpanExporter,
) -> None:
    with tracing.span(job()):
        pass

    span = only(spans)
    assert (span.name, span.kind, span.parent) == ("process send", SpanKind.CONSUMER, None)
    assert span.attributes is not None
    told = dict(span.attributes)
    assert told["messaging.system"] == "unstuck"
    assert told["messaging.destination.name"] == "mail"
    assert told["messaging.message.id"] == "j1"
    assert told["unstuck.attempt"] == 2
    assert span.status.status_code is StatusCode.UNSET


def test_the_span_continues_the_trace_of_the_enqueue(spans: InMemorySpanExporter) -> None:
    with tracing.span(job(PARENT)):
        pass

    span = only(spans)
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"


def test_a_trace_goes_from_enqueue_through_the_handler_into_what_it_enqueues(
    spans: InMemorySpanExporter,
) -> None:
    tracer = trace.get_tracer_provider().get_tracer("test")
    with tracer.start_as_current_span("request"):
        first = tracing.current()
    with tracing.span(job(first)):
        second = tracing.current()

    request, handler = spans.get_finished_spans()
    assert first is not None
    assert second is not None
    assert first.startswith(f"00-{request.context.trace_id:032x}-{request.context.span_id:016x}-")
    assert handler.parent is not None
    assert handler.parent.span_id == request.context.span_id
    assert second.startswith(f"00-{request.context.trace_id:032x}-{handler.context.span_id:016x}-")


@pytest.mark.parametrize("garbage", ["", "nonsense", "00-0-0-00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_trace_that_cannot_be_read_begins_a_new_one(spans: InMemorySpanExporter, garbage: str) -> None:
    with tracing.span(job(garbage)):
        pass

    assert only(spans).parent is None


def test_what_is_open_in_the_worker_is_not_the_jobs_parent(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer_provider().get_tracer("test").start_as_current_span("worker"), tracing.span(job()):
        pass

    assert spans.get_finished_spans()[0].parent is None


@pytest.mark.parametrize(
    "error", [Permanent("token=hunter2 was refused"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
def test_an_error_is_recorded_without_its_secrets_and_goes_on(
    spans: InMemorySpanExporter, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught, tracing.span(job()):
        raise error

    assert caught.value is error
    span = only(spans)
    assert span.status.status_code is StatusCode.ERROR
    [event] = span.events
    assert event.attributes is not None
    assert event.name == "exception"
    assert str(event.attributes["exception.type"]).endswith(type(error).__name__)
    assert "Traceback" in str(event.attributes["exception.stacktrace"])
    assert "hunter2" not in span.to_json()


def test_a_handler_that_was_cancelled_did_nothing_wrong(spans: InMemorySpanExporter) -> None:
    with pytest.raises(asyncio.CancelledError), tracing.span(job()):
        raise asyncio.CancelledError

    assert only(spans).status.status_code is StatusCode.UNSET


@pytest.mark.anyio
async def test_handlers_that_run_together_do_not_share_spans(spans: InMemorySpanExporter) -> None:
    both = asyncio.Barrier(2)

    async def handle() -> str | None:
        with tracing.span(job()):
            await both.wait()
            return tracing.current()

    first, second = await asyncio.gather(handle(), handle())

    assert first != second
    assert tracing.current() is None


def test_without_an_sdk_nothing_is_traced() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    with tracing.span(job(PARENT)):
        assert tracing.current() is None


def test_a_process_that_does_not_trace_does_not_even_import_the_api() -> None:
    code = (
        "import sys; from unstuck.app import tracing; from types import SimpleNamespace as Job\n"
        "with tracing.span(Job(task='t')): assert tracing.current() is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
