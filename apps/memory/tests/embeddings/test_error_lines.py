"""What the log says about an embedding that failed: enough to know whether its text or something around it is to blame."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support_memory.conformance.given import more
from support_memory.embedding_server import EmbeddingServer, Refusal, Request, Reset, Vectors
from support_memory.queued import Queued
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.graphs.sqlite import SqliteGraph

from unstuck import log_json

pytestmark = pytest.mark.anyio
SECRET = "sk-abcdefgh12345678"


class Lines(logging.Handler):
    """The lines about jobs that failed, as the command writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = json.loads(self.format(record))
        if "errorType" in line:
            self.lines.append(line)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    log_json()
    [formatted] = root.handlers
    lines = Lines()
    lines.setFormatter(formatted.formatter)
    logging.captureWarnings(False)
    root.handlers[:] = kept
    root.setLevel(level)
    logging.getLogger("unstuck.worker").addHandler(lines)
    monkeypatch.setattr(logging.getLogger("unstuck.worker"), "propagate", False)
    return lines


@pytest.fixture(autouse=True)
def forgotten(lines: Lines) -> Any:
    yield
    logging.getLogger("unstuck.worker").removeHandler(lines)


@pytest.mark.accepts("EMB-098", "EMB-099")
async def test_a_line_has_the_model_and_some_of_the_observations_redacted(
    queued: Queued, server: EmbeddingServer, lines: Lines
) -> None:
    long = "x" * 300
    observations = [f"key {SECRET}", long, *(f"observation {number}" for number in range(20))]
    await queued.create("Ann", observations=observations)
    server.next(Refusal(400, message="this text is not for us"))
    await queued.queue.process_jobs(10)

    [line] = lines.lines
    job = (await queued.jobs())["Ann", 1]
    assert (line["jobId"], line["entityName"], line["errorType"]) == (job.id, "Ann", "PERMANENT")
    assert (line["attempt"], line["maxAttempts"], line["operation"]) == (1, 3, "generate_embedding")
    assert "workerId" in line
    assert "Traceback" in line["stack"]
    facts = line["facts"]
    assert facts["model"] == "m"
    shown = facts["observations"]
    assert shown[0] == "key [redacted]"
    assert (len(shown), len(shown[1]), shown[1].startswith("xxx")) == (10, 200, True)
    assert shown[2:] == [f"observation {number}" for number in range(8)]
    whole = json.dumps(lines.lines)
    assert SECRET not in whole
    assert "observation 8" not in whole


@pytest.mark.accepts("EMB-100", "EMB-101")
async def test_a_line_has_the_state_of_the_rate_and_what_was_cached(
    file_graph: SqliteGraph,
    hosted: OpenAIProvider,
    server: EmbeddingServer,
    lines: Lines,
    tmp_path: Path,
) -> None:
    environ = {"EMBEDDING_RATE_LIMIT_TOKENS": "7", "EMBEDDING_RATE_LIMIT_INTERVAL": "3600000"}
    async with Queued(file_graph, hosted, tmp_path, environ) as queued:
        await queued.create("Ann", observations=["old", "older"])
        await queued.queue.process_jobs(10)
        await queued.memory.add_observations([more("Ann", "new")])
        server.next(Reset())
        await queued.queue.process_jobs(1)
    [line] = lines.lines
    assert line["errorType"] == "TRANSIENT"
    assert line["facts"]["cache"] == "2 hits, 2 misses"
    rate = line["facts"]["rateLimiter"]
    assert (rate["count"], rate["per"], rate["closed_for"]) == (7, 3600, 0)
    assert 2 <= rate["out"] <= 7
    assert 0 < rate["first_back"] <= 3601


@pytest.mark.accepts("EMB-102")
async def test_a_line_shows_whether_the_data_or_the_infrastructure_is_to_blame(
    queued: Queued, server: EmbeddingServer, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: Request) -> Refusal | Vectors:
        return Refusal(422) if any("unreadable" in text for text in request.texts) else Vectors()

    async def of(name: str, answer: Any) -> tuple[str, str, str]:
        server.always(answer)
        await queued.create(name)
        await queued.queue.process_jobs(10)
        line = [line for line in lines.lines if line.get("entityName") == name][-1]
        return line["facts"]["problem"], line["errorType"], line["code"]

    assert await of("unreadable", refuse) == ("data", "PERMANENT", "http_422")
    assert await of("outage", Refusal(503)) == ("infrastructure", "TRANSIENT", "http_503")
    assert await of("key", Refusal(401)) == ("infrastructure", "PERMANENT", "http_401")
    assert await of("shape", Vectors(dimension=3)) == ("infrastructure", "PERMANENT", "bad_vectors")

    async def away(*_: Any) -> Any:
        raise OSError("the graph is away")

    server.always(Vectors())
    await queued.create("graph")
    monkeypatch.setattr(queued.graph, "current", away)
    await queued.queue.process_jobs(10)
    facts = lines.lines[-1]["facts"]
    assert (facts["problem"], facts["model"], "observations" in facts) == ("infrastructure", "m", False)
