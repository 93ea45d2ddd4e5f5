"""A SQLite file that is named from the current folder is the same one after the process has changed folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from unstuck import Reaper, Unstuck, open_store
from unstuck.cli.settings import load
from unstuck.operations.metrics import serve_metrics
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import NewJob
from unstuck.protocol.operators import Filter
from unstuck.stores import existing_store
from unstuck.stores.shared.urls import absolute_url

pytestmark = pytest.mark.anyio

MOVING = """
import asyncio, os, tempfile
from unstuck import Unstuck, Worker

app = Unstuck("sqlite:///jobs.db")


@app.task(isolate=True, retry=1)
def apart(n: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        notify.enqueue_sync(n)
        return os.listdir(folder)


@app.task(isolate=True, retry=1)
async def apart_on_a_loop(n: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        await notify.enqueue(n)
        return os.listdir(folder)


@app.task(retry=1)
def in_a_thread(n: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        notify.enqueue_sync(n)
        os.chdir(here)
        return os.listdir(folder)


@app.task
def notify(n: int) -> None:
    print("notified", n)


async def main() -> None:
    handles = [await task.enqueue(n) for n, task in enumerate((apart, apart_on_a_loop, in_a_thread))]
    await Worker(app, burst=True, concurrency=1).run()
    for handle in handles:
        print("left", await handle.result(5))


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def go_elsewhere(here: Path) -> None:
    os.chdir(here.parent / "elsewhere")


async def payloads(file: Path) -> list[Any]:
    async with existing_store(f"sqlite:///{file}") as store:
        return [job.payload for job in (await store.find(Filter())).jobs]


def test_a_handler_that_changed_folder_enqueues_into_the_store_of_its_worker(tmp_path: Path) -> None:
    (tmp_path / "moving.py").write_text(MOVING)

    ran = subprocess.run(
        [sys.executable, "moving.py"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )

    assert sorted(ran.stdout.splitlines()) == ["left []"] * 3 + [f"notified {n}" for n in range(3)], (
        ran.stderr
    )


async def test_an_app_keeps_its_file(here: Path) -> None:
    app = Unstuck("sqlite:///jobs.db")

    @app.task
    async def work(n: int) -> None: ...

    go_elsewhere(here)
    async with app:
        await work.enqueue(1)

    assert await payloads(here / "jobs.db") == [{"n": 1}]
    assert list(Path().iterdir()) == []


async def test_a_store_and_its_twin_keep_their_file(here: Path) -> None:
    store = open_store("sqlite:///jobs.db?events=all")

    go_elsewhere(here)
    async with store:
        await store.migrate()
        await store.enqueue([NewJob(queue="q", id="1", task="t", payload=1)])
        async with store.twin() as twin:
            await twin.enqueue([NewJob(queue="q", id="2", task="t", payload=2)])

    assert sorted(await payloads(here / "jobs.db")) == [1, 2]
    assert list(Path().iterdir()) == []


async def test_so_do_settings_reapers_and_metrics(here: Path) -> None:
    (here / "unstuck.toml").write_text('store = "sqlite:///jobs.db?events=all"\n')

    settings = load(None, {})
    reaper = Reaper("sqlite:///jobs.db")
    with serve_metrics("sqlite:///jobs.db", 0) as server:
        go_elsewhere(here)
        async with reaper:
            pass
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            assert answer.status == 200

    assert settings.store == f"sqlite:///{here}/jobs.db?events=all"
    assert (here / "jobs.db").exists()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", ["C#", "what?", "100%", "50%23", "tab\there"])
async def test_the_folder_may_have_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    app = Unstuck("sqlite:///jobs.db")
    monkeypatch.chdir(tmp_path)

    async with app:
        assert (tmp_path / name / "jobs.db").exists()

    assert absolute_url(app.url) == app.url


def test_a_folder_that_is_gone_is_named(here: Path) -> None:
    here.rmdir()

    with pytest.raises(ConfigError, match="is relative to the current folder, which does not exist any more"):
        Unstuck("sqlite:///jobs.db")


def test_a_store_without_a_file_of_its_own_is_left_as_it_is() -> None:
    for url in ("sqlite:///:memory:", "sqlite:////var/lib/jobs.db", "redis://localhost:6379/0"):
        assert absolute_url(url) == url


def test_a_folder_whose_name_sqlite_cannot_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"latin-\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)

    with pytest.raises(ConfigError, match="not valid UTF-8, which SQLite cannot open"):
        Unstuck("sqlite:///jobs.db")
