"""The examples are run as they lie there. Django's is among the tests of Django."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.examples import EXAMPLES, PLACE, drive
from support.postgres import Postgres
from support.processes import Child
from support.waiting import until

from unstuck import Filter, Job, Jobs, open_store

STATUS = """
import json, subprocess, sys
from fastapi.testclient import TestClient
from status_app import web
with TestClient(web) as client:
    ask = lambda *request, **said: client.request(*request, **said).json()
    started = [ask("POST", "/exports", params={"rows": 1000})["job"] for _ in range(2)]
    before = [ask("GET", f"/jobs/{id}") for id in started]
    stopped = ask("DELETE", f"/jobs/{started[1]}")
    worker = subprocess.run([sys.executable, "-m", "unstuck", "worker", "status_app:app", "--burst"])
    after = [ask("GET", f"/jobs/{id}") for id in [*started, "nope"]]
    print(json.dumps([before, stopped, worker.returncode, after]))
"""
SLOT = """
import asyncio
from reports import app, report
from unstuck.testing import inline
async def main():
    async with inline(app) as jobs:
        job = await report.options(key="schedule:nightly:2026-03-29T01:00:00+00:00").enqueue()
        await jobs.run()
        print(await job.result())
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("example", ["fastapi_app", "flask_app"])
def test_an_order_and_its_job_are_stored_together_or_not_at_all(example: str, pg18: Postgres) -> None:
    url = pg18.create_database()

    drive(example, url)

    pg18.drop_database(url)


def test_a_page_shows_how_far_a_job_is_and_stops_another(tmp_path: Path) -> None:
    before, stopped, code, [done, cancelled, unknown] = json.loads(
        python("-W", "ignore", "-c", STATUS, folder=tmp_path)
    )

    waiting = {
        "status": "pending",
        "progress": None,
        "why": "No worker takes queue 'default': start one that does. No worker is alive at all: one that was started has "
        "ended, or never reached this store. See its output.",
    }
    assert (before, stopped, code) == ([waiting, waiting], {"cancelled": True}, 0)
    assert done == {"status": "completed", "result": "1000 rows"}
    assert (cancelled["status"], unknown) == ("failed", {"detail": "no job has the id 'nope'"})


def test_three_kinds_of_handlers_succeed_and_fail_as_they_should(tmp_path: Path) -> None:
    with worker("handlers:app", tmp_path):
        printed = python(str(EXAMPLES / "handlers.py"), folder=tmp_path)

    assert printed.splitlines() == [
        "2 True",
        "CardDeclined - bob cannot pay 200000",
        "timeout - the handler took longer than 1 s",
    ]


@pytest.mark.parametrize(("example", "tests"), [("test_handlers", 3), ("test_fastapi_app", 2)])
def test_the_tests_of_an_example_pass(tmp_path: Path, example: str, tests: int) -> None:
    printed = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / f"{example}.py"), folder=tmp_path
    )

    assert f"{tests} passed" in printed


@pytest.mark.long
def test_what_a_shop_did_with_celery_it_does_here(tmp_path: Path) -> None:
    tests = EXAMPLES / "from_celery/test_shop.py"
    path = os.pathsep.join([str(tests.parent), os.environ.get("PYTHONPATH", "")])
    printed = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), folder=tmp_path, PYTHONPATH=path
    )

    assert "13 passed" in printed


def test_embeddings_come_fifty_a_request_and_a_429_costs_nothing(tmp_path: Path) -> None:
    with provider() as (url, refused, answered), worker("embeddings:app", tmp_path, EMBEDDINGS_URL=url):
        printed = python(
            str(EXAMPLES / "embeddings.py"), folder=tmp_path, said="".join(f"text {n}\n" for n in range(120))
        )

    assert printed == "120 vectors\n"
    assert (len(refused), sum(answered)) == (1, 120)
    assert 1 < max(answered) <= 50
    assert {job.attempts for job in jobs_of(tmp_path / "embeddings.db")} == {1}


def test_a_schedule_fires_and_a_report_knows_its_day(tmp_path: Path) -> None:
    with worker("reports:app", tmp_path):
        until(
            lambda: len([job for job in jobs_of(tmp_path / "reports.db") if job.result]) >= 2,
            30,
            "two measurements",
        )

    assert {job.task for job in jobs_of(tmp_path / "reports.db")} == {"free_bytes"}
    assert python("-c", SLOT, folder=tmp_path) == "2026-03-28\n"


def test_an_example_is_short() -> None:
    lengths = {file.stem: len(file.read_text().splitlines()) for file in EXAMPLES.glob("*.py")}

    assert lengths.keys() == {
        "django_app", "embeddings", "fastapi_app", "flask_app", "handlers", "reports", "status_app", "test_fastapi_app",
        "test_handlers",
    }  # fmt: skip
    assert max(lengths.values()) <= 80, lengths


def python(*argv: str, folder: Path, said: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder, env=os.environ | PLACE | environment, input=said, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def worker(app: str, folder: Path, **environment: str) -> Iterator[None]:
    """Works beside the block, and ends as it should when it is asked to."""
    argv = [sys.executable, "-m", "unstuck", "worker", app]
    with Child(argv, folder / "worker.log", env=PLACE | environment, cwd=folder) as child:
        child.until_line("takes", 30)
        yield
        child.terminate()
        assert child.wait(30) == 0


@contextmanager
def provider() -> Iterator[tuple[str, list[int], list[int]]]:
    """Refuses the first request and answers the others; tells how many texts each of both had."""
    turns, refused, answered = count(), list[int](), list[int]()

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            first = next(turns) == 0
            (refused if first else answered).append(len(texts))
            body = json.dumps({"data": [{"embedding": [float(len(text))]} for text in texts]}).encode()
            self.send_response(429 if first else 200)
            if first:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/embeddings", refused, answered
        server.shutdown()


def jobs_of(file: Path) -> list[Job]:
    async def find() -> Any:
        async with open_store(f"sqlite:///{file}") as store:
            return (await Jobs(store).find(Filter(), limit=1000)).jobs

    return [*asyncio.run(find())]
