"""Metrics as Prometheus sees them: over HTTP, from a real store."""

import asyncio
import importlib
import re
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, Reaper, Unstuck, open_store
from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.job import Category
from unstuck.protocol.outcome import completed, failed
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, one_leased, trouble

pytestmark = pytest.mark.anyio
LABELS = ("queue", "worker", "status", "outcome")
Samples = dict[tuple[Any, ...], float]


def scrape(port: int, host: str = "127.0.0.1") -> Samples:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        assert answer.status == 200
        return read(answer.read().decode())


def read(text: str) -> Samples:
    """Samples by name and the values of their labels."""
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def served(url: str) -> Samples:
    from unstuck.operations.metrics import serve_metrics

    with serve_metrics(url, 0) as server:
        return await asyncio.to_thread(scrape, server.port)


async def test_jobs_are_counted_by_queue_and_status(harness: SQLiteHarness) -> None:
    await enqueued(harness.store, 2)
    await enqueued(harness.store, 1, delay=60.0)
    [job, _] = await leased(harness.store, 2)
    await harness.store.settle([completed(job.lease)])

    seen = await served(harness.url)

    assert seen[("unstuck_up",)] == 1
    kinds = {key[2]: value for key, value in seen.items() if key[:2] == ("unstuck_jobs", "q")}
    assert kinds == {
        "pending": 1,
        "delayed": 1,
        "processing": 1,
        "expired": 0,
        "completed": 1,
        "failed": 0,
        "cancelled": 0,
    }
    assert seen["unstuck_outcomes_total", "q", "completed"] == 1
    assert (
        seen["unstuck_outcomes_total", "q", "retried"] == 0
    )  # there from the start, so that rates are right


@pytest.mark.accepts("REAP-014", "REAP-024")
async def test_what_reapers_did_is_seen_from_outside(harness: SQLiteHarness) -> None:
    await one_leased(harness.store, max_attempts=1)
    await one_leased(harness.store, max_attempts=3)
    await one_leased(harness.store, max_attempts=3)
    await harness.age(61)
    assert (await served(harness.url))["unstuck_jobs", "q", "expired"] == 3
    await Reaper(harness.store).recover()
    await harness.store.heartbeat(WorkerInfo(id="w1", queues=("q",), scan_ms=12.5), [])

    seen = await served(harness.url)

    assert seen["reaper_requeues_total", "q"] == 2
    assert seen["reaper_failures_total", "q"] == 1
    assert seen["reaper_scan_duration_ms", "w1"] == 12.5
    assert seen["unstuck_jobs", "q", "expired"] == 0
    assert seen["unstuck_outcomes_total", "q", "crashed"] == 3


@pytest.mark.accepts("REAP-062")
async def test_what_a_worker_reaps_and_how_long_it_looks_is_seen_from_outside(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    for attempts in (1, 3, 3):
        await one_leased(harness.store, max_attempts=attempts)
    await harness.age(61)
    app.task(name="task", queue="q", lease=20.0, heartbeat=0.3)(lambda: None)
    seen: Samples = {}
    async with at_work(app) as worker:

        async def shown() -> bool:
            seen.update(await served(harness.url))
            return ("reaper_scan_duration_ms", worker.id) in seen

        await until_async(shown, 15, "its scan")

    assert 0 < seen["reaper_scan_duration_ms", worker.id] < 5000
    assert (seen["reaper_requeues_total", "q"], seen["reaper_failures_total", "q"]) == (2, 1)


async def test_workers_are_shown_while_they_live(harness: SQLiteHarness) -> None:
    await harness.store.heartbeat(WorkerInfo(id="gone", queues=("q",)), [])
    await harness.age(61)
    await harness.store.heartbeat(WorkerInfo(id="w1", queues=("q",), running=3), [])
    await harness.store.heartbeat(WorkerInfo(id="w2", queues=("q",), health=Health(status="DEGRADED")), [])

    seen = await served(harness.url)

    assert seen[("unstuck_workers",)] == 2
    assert (seen["unstuck_worker_running", "w1"], seen["unstuck_worker_running", "w2"]) == (3, 0)
    assert (seen["unstuck_worker_healthy", "w1"], seen["unstuck_worker_healthy", "w2"]) == (1, 0)
    assert not any("gone" in key for key in seen)
    assert not any(key[0] == "reaper_scan_duration_ms" for key in seen)


async def test_a_paused_queue_is_shown(harness: SQLiteHarness) -> None:
    await enqueued(harness.store)
    assert (await served(harness.url))["unstuck_queue_paused", "q"] == 0

    await harness.store.pause("q", "by hand")

    assert (await served(harness.url))["unstuck_queue_paused", "q"] == 1


async def test_a_halted_queue_is_shown_as_halted_and_as_one_of_which_nothing_is_taken(
    harness: SQLiteHarness,
) -> None:
    job = await one_leased(harness.store)
    await harness.store.pause("q", "CRITICAL fix is being deployed")
    assert (await served(harness.url))["unstuck_queue_halted", "q"] == 0
    await harness.store.pause("q", None)

    await harness.store.settle([failed(job.lease, trouble(Category.CRITICAL), halt="CRITICAL: broken")])

    seen = await served(harness.url)
    assert (seen["unstuck_queue_halted", "q"], seen["unstuck_queue_paused", "q"]) == (1, 1)


async def test_each_scrape_looks_again(app: Unstuck, harness: SQLiteHarness) -> None:
    from unstuck.operations.metrics import serve_metrics

    with serve_metrics(harness.url, 0) as server:
        before = await asyncio.to_thread(scrape, server.port)
        await enqueued(harness.store)
        after = await asyncio.to_thread(scrape, server.port)

    assert ("unstuck_jobs", "q", "pending") not in before
    assert after["unstuck_jobs", "q", "pending"] == 1


async def test_many_scrapes_at_once_are_all_answered(harness: SQLiteHarness) -> None:
    from unstuck.operations.metrics import serve_metrics

    await enqueued(harness.store)
    with serve_metrics(harness.url, 0) as server:
        answers = await asyncio.gather(*(asyncio.to_thread(scrape, server.port) for _ in range(16)))

    assert {seen["unstuck_jobs", "q", "pending"] for seen in answers} == {1}


async def test_an_open_store_can_be_read_without_a_server(harness: SQLiteHarness) -> None:
    from unstuck.operations.metrics import exposition

    await enqueued(harness.store)

    assert read((await exposition(harness.store)).decode())["unstuck_jobs", "q", "pending"] == 1


async def test_a_store_that_is_closed_is_shown_as_down(harness: SQLiteHarness) -> None:
    from unstuck.operations.metrics import exposition

    closed = open_store(harness.url)

    assert read((await exposition(closed)).decode()) == {("unstuck_up",): 0}


def test_a_store_that_is_down_is_reported_and_found_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from unstuck.operations.metrics import serve_metrics

    folder = tmp_path / "later"
    with serve_metrics(f"sqlite:///{folder}/jobs.db", 0) as server:
        assert scrape(server.port) == {("unstuck_up",): 0}
        folder.mkdir()
        assert scrape(server.port)[("unstuck_up",)] == 1

    assert "Traceback" not in capfd.readouterr().err


def test_a_store_that_goes_away_and_comes_back_is_opened_again(tmp_path: Path) -> None:
    from unstuck.operations.metrics import serve_metrics

    file = tmp_path / "jobs.db"
    with serve_metrics(f"sqlite:///{file}", 0) as server:
        assert scrape(server.port)[("unstuck_up",)] == 1
        connection = apsw.Connection(str(file))
        connection.execute("DROP TABLE worker")
        assert scrape(server.port) == {("unstuck_up",): 0}
        connection.close()
        for part in tmp_path.iterdir():
            part.unlink()
        assert scrape(server.port)[("unstuck_up",)] == 1


def test_a_store_that_hangs_does_not_hang_the_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from unstuck.operations import metrics

    file = tmp_path / "jobs.db"
    with metrics.serve_metrics(f"sqlite:///{file}", 0) as server:
        assert scrape(server.port)[("unstuck_up",)] == 1
    monkeypatch.setattr(metrics, "PATIENCE", 0.2)  # from here on: to make a store may take longer

    holder = apsw.Connection(str(file))  # alone with the file: whoever opens it has to wait
    holder.pragma("locking_mode", "exclusive")
    holder.execute("BEGIN IMMEDIATE; CREATE TABLE held (x); COMMIT")
    with metrics.serve_metrics(f"sqlite:///{file}", 0) as server:
        began = time.monotonic()
        assert scrape(server.port) == {("unstuck_up",): 0}
        assert scrape(server.port) == {("unstuck_up",): 0}
        assert time.monotonic() - began < 10
        holder.close()
        monkeypatch.setattr(metrics, "PATIENCE", 20.0)
        eventually(lambda: scrape(server.port)[("unstuck_up",)] == 1)

    assert "Traceback" not in capfd.readouterr().err


class Deaf:
    """A driver that blocks the event loop it runs on."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    async def __aenter__(self) -> Any:
        self.gate.wait(60)
        raise OSError("no route to host")


def test_a_driver_that_blocks_its_loop_hangs_neither_the_scrape_nor_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from unstuck.operations import metrics

    monkeypatch.setattr(metrics, "PATIENCE", 0.1)
    deaf, began = Deaf(), time.monotonic()
    with metrics.MetricsServer(lambda: deaf, 0, "127.0.0.1") as server:  # type: ignore[arg-type,return-value]
        assert scrape(server.port) == {("unstuck_up",): 0}

    assert time.monotonic() - began < 20
    deaf.gate.set()
    server._reader._thread.join(20)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_busy_port_is_reported_in_one_line(tmp_path: Path) -> None:
    from unstuck.operations.metrics import serve_metrics

    url = f"sqlite:///{tmp_path}/jobs.db"
    with (
        serve_metrics(url, 0) as server,
        pytest.raises(ConfigError, match=rf"port {server.port}: Address already in use") as caught,
    ):
        serve_metrics(url, server.port)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "port", "host", "named"),
    [
        ("nonsense://", 0, "127.0.0.1", "store"),
        ("sqlite:///jobs.db", -1, "127.0.0.1", "port"),
        ("sqlite:///jobs.db", 65536, "127.0.0.1", "port"),
        ("sqlite:///jobs.db", 0, "203.0.113.1", "203.0.113.1"),
    ],
)
def test_what_cannot_be_is_refused_at_once(url: str, port: int, host: str, named: str) -> None:
    from unstuck.operations.metrics import serve_metrics

    with pytest.raises(ConfigError, match=re.escape(named)):
        serve_metrics(url, port, host)


def test_it_listens_on_ipv6_too(tmp_path: Path) -> None:
    from unstuck.operations.metrics import serve_metrics

    if not socket.has_ipv6:
        return
    with serve_metrics(f"sqlite:///{tmp_path}/jobs.db", 0, "::1") as server:
        assert scrape(server.port, "[::1]")[("unstuck_up",)] == 1


def test_a_client_that_hangs_up_leaves_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from unstuck.operations.metrics import serve_metrics

    with serve_metrics(f"sqlite:///{tmp_path}/jobs.db", 0) as server:
        for said in (b"", b"GET /metrics HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as if it died
                rude.sendall(said)
        assert scrape(server.port)[("unstuck_up",)] == 1

    assert "Traceback" not in capfd.readouterr().err


def test_without_the_client_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "unstuck.operations.metrics", raising=False)

    with pytest.raises(ConfigError, match=r"pip install 'unstuck\[metrics\]'"):
        importlib.import_module("unstuck.operations.metrics")
