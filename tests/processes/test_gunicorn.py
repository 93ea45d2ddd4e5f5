"""A web server that loads the application before it forks its workers: what each of them enqueues is kept."""

import asyncio
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.folders import IMPORTABLE
from support.processes import Child
from support.waiting import until_async

from unstuck import Filter
from unstuck.testing import Harness, PostgresHarness, RedisHarness, SQLiteHarness

# What a fork does to a store does not depend on the Python.
pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SERVERS: dict[str, Any] = {"pg15": PostgresHarness, "redis7": RedisHarness}


def ask(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        pid, job = answer.read().decode().split()
    return pid, job


async def preloaded(harness: Harness, folder: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "gunicorn",
        "--preload",
        "--workers",
        "3",
        "--bind",
        "127.0.0.1:0",
        "preloaded_app:web",
    ]
    env = {**os.environ, "UNSTUCK_STORE": harness.url, "PYTHONPATH": IMPORTABLE}
    enqueued: dict[str, set[str]] = {}
    with Child(argv, folder / "gunicorn.log", env=env) as child:
        line = await child.until_line_async("Listening at", 60)
        found = re.search(r"http://[0-9.:]+", line)
        assert found is not None

        async def each_answered() -> bool:
            pid, job = await asyncio.to_thread(ask, found[0])
            enqueued.setdefault(pid, set()).add(job)
            return len(enqueued) == 3 and min(map(len, enqueued.values())) >= 3

        await until_async(each_answered, 60, "three jobs of each of three processes", child.log)
    jobs = (await harness.store.find(Filter(queue="web"), limit=1000)).jobs
    assert {job.id for job in jobs if job.payload["of"] == "request"} == set().union(*enqueued.values())
    assert [job.payload["of"] for job in jobs].count("import") == 1  # by the process that forked the others


@pytest.mark.parametrize("server", [None, "pg15", "redis7"])
async def test_each_process_enqueues_after_the_first_has(
    request: pytest.FixtureRequest, harness: SQLiteHarness, server: str | None, tmp_path: Path
) -> None:
    if server is None:
        await preloaded(harness, tmp_path)
        return
    async with SERVERS[server](request.getfixturevalue(server).url()) as other:
        await preloaded(other, tmp_path)
