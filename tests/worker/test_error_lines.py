"""What the command that runs workers writes to its log about jobs that failed."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.command import unstuck

from unstuck import open_store
from unstuck.protocol.job import NewJob

APP = """
import sqlite3
from unstuck import Permanent, Unstuck, current_job
app = Unstuck("sqlite:///jobs.db")

@app.task
async def embed(entity: str) -> None:
    current_job().bind(entityName=entity)
    match entity:
        case "far":
            raise ConnectionResetError("the line\\nbroke")
        case "wrong":
            raise Permanent("no such entity")
        case "damaged":
            sqlite3.connect("tasks.py").execute("SELECT 1 FROM entities")
"""
ENTITIES = ("far", "wrong", "damaged")


class Ran(NamedTuple):
    text: str
    began: datetime
    ended: datetime

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def of(self, entity: str) -> list[dict[str, Any]]:
        """The lines about the failures of its job."""
        return [line for line in self.lines if line.get("jobId") == f"job-{entity}" and "attempt" in line]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder: Path = tmp_path_factory.mktemp("lines")
    (folder / "tasks.py").write_text(APP)
    began, text = datetime.now(UTC), ""
    for entities in (("far", "wrong"), ("damaged",)):  # which halts the worker
        asyncio.run(enqueue(folder, *entities))
        text += unstuck(folder, "worker", "tasks:app", "--burst", "--processes", "1").stderr
    return Ran(text, began, datetime.now(UTC))


async def enqueue(folder: Path, *entities: str) -> None:
    async with open_store(f"sqlite:///{folder}/jobs.db") as store:
        await store.migrate()
        await store.enqueue(
            [
                NewJob(
                    queue="default",
                    task="embed",
                    id=f"job-{entity}",
                    payload={"entity": entity},
                    max_attempts=2,
                    backoff=(),
                )
                for entity in entities
            ]
        )


@pytest.mark.accepts("EMB-097")
def test_every_entry_is_one_json_object(ran: Ran) -> None:
    assert len(ran.lines) > 10
    assert all(
        isinstance(line, dict) and {"timestamp", "level", "logger", "message"} <= line.keys()
        for line in ran.lines
    )
    assert "the line\nbroke" in ran.of("far")[0]["error"]


@pytest.mark.accepts("EMB-090", "EMB-091", "EMB-094")
def test_every_failure_is_reported_with_its_job_and_its_attempt(ran: Ran) -> None:
    told = {
        entity: [(line["attempt"], line["maxAttempts"]) for line in ran.of(entity)] for entity in ENTITIES
    }
    assert told == {"far": [(1, 2), (2, 2)], "wrong": [(1, 2)], "damaged": [(1, 2)]}
    grave = [line for line in ran.lines if line["level"] in ("WARNING", "ERROR", "CRITICAL")]
    assert grave
    for line in grave:
        assert line.keys() - {"timestamp", "level", "logger", "message"}, line


@pytest.mark.accepts("EMB-092", "EMB-093", "EMB-068")
def test_a_failure_is_reported_with_its_entity_its_type_and_its_severity(ran: Ran) -> None:
    told = [
        (line["entityName"], line["errorType"], line["level"])
        for entity in ENTITIES
        for line in ran.of(entity)
    ]
    assert told == [
        ("far", "TRANSIENT", "WARNING"), ("far", "TRANSIENT", "ERROR"), ("wrong", "PERMANENT", "ERROR"),
        ("damaged", "CRITICAL", "CRITICAL"),
    ]  # fmt: skip


@pytest.mark.accepts("EMB-095", "EMB-096")
def test_a_failure_is_reported_with_its_message_stack_time_and_worker(ran: Ran) -> None:
    for entity, error in (
        ("far", "broke"),
        ("wrong", "no such entity"),
        ("damaged", "file is not a database"),
    ):
        for line in ran.of(entity):
            assert error in line["message"]
            assert "Traceback" in line["stack"]
            assert "in embed" in line["stack"]
            assert error in line["stack"]
            assert ran.began <= datetime.fromisoformat(line["timestamp"]) <= ran.ended
    workers: list[str] = []
    for line in ran.lines:
        if " takes default" in line["message"]:
            workers.append(line["message"].split()[1])
        elif "attempt" in line:
            assert line["workerId"] == workers[-1]
    assert len(set(workers)) == 2
