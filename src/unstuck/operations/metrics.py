"""Metrics for Prometheus, read from the store at the moment they are asked for; any process can show them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from datetime import datetime
from socket import AF_INET6
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from unstuck.config.checks import whole
from unstuck.operations.health import HEALTHY, alive
from unstuck.operations.store_urls import store_url
from unstuck.protocol.errors import ConfigError
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.foreign import ForeignTables
from unstuck.protocol.operators import Counts
from unstuck.protocol.store import Store
from unstuck.stores import open_store

try:
    from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigError("metrics need the prometheus client: pip install 'unstuck[metrics]'") from None

log = logging.getLogger("unstuck.metrics")

PATIENCE = 5.0  # seconds for the store to answer; Prometheus itself gives up after ten
KINDS = ("pending", "delayed", "processing", "expired", "completed", "failed", "cancelled")
OUTCOMES = ("completed", "failed", "retried", "released", "crashed", "cancelled", "expired")
REAPER = {
    "reaper.requeues": ("reaper_requeues", "Jobs whose lease ran out and that were requeued."),
    "reaper.failures": ("reaper_failures", "Jobs whose lease ran out and that were failed."),
}


Scan = Callable[[], tuple[str, float] | None]


class Snapshot(NamedTuple):
    """All that the metrics are made of."""

    counts: list[Counts]
    workers: list[WorkerInfo]
    now: datetime


async def snapshot(store: Store | ForeignTables) -> Snapshot:
    return Snapshot(await store.count(), (await store.fleet()).workers, (await store.clock()).now)


async def exposition(store: Store | ForeignTables) -> bytes:
    """The metrics as Prometheus reads them, of a store that is open; one that does not answer is reported as down."""
    try:
        async with asyncio.timeout(PATIENCE):
            seen = await snapshot(store)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the store, the answer is that it is down
        _log_silence(error)
        return generate_latest(_registry(lambda: None))
    return generate_latest(_registry(lambda: seen))


class StoreCollector(Collector):
    """Asks for a snapshot at every scrape; None means that the store does not answer.

    ``scan`` is for a reaper of this process that belongs to no worker: its name, and how long its last scan took.
    """

    def __init__(self, ask: Callable[[], Snapshot | None], scan: Scan) -> None:
        self._ask = ask
        self._scan = scan

    def collect(self) -> Iterator[Metric]:
        seen = self._ask()
        yield GaugeMetricFamily("unstuck_up", "Whether the store answers.", value=float(seen is not None))
        if seen is not None:
            yield from _of_queues(seen.counts)
            yield from _of_workers(alive(seen.workers, seen.now), self._scan())

    def describe(self) -> list[Metric]:
        """Nothing beforehand, or registering would already ask the store."""
        return []


def _of_queues(counts: list[Counts]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "unstuck_jobs",
        "Jobs there are. Delayed ones are also pending, expired also processing, cancelled also failed.",
        labels=["queue", "status"],
    )
    paused = GaugeMetricFamily("unstuck_queue_paused", "1 while nothing is taken.", labels=["queue"])
    halted = GaugeMetricFamily(
        "unstuck_queue_halted", "1 after a CRITICAL error, until somebody resumes it.", labels=["queue"]
    )
    outcomes = CounterMetricFamily(
        "unstuck_outcomes", "Leases by how they ended.", labels=["queue", "outcome"]
    )
    reaped = {
        name: CounterMetricFamily(called, what, labels=["queue"]) for name, (called, what) in REAPER.items()
    }
    for of in counts:
        paused.add_metric([of.queue], float(bool(of.stopped)))
        halted.add_metric([of.queue], float(of.halted is not None))
        for kind in KINDS if of.trouble is None else ():
            jobs.add_metric([of.queue, kind], getattr(of, kind))
        for outcome in OUTCOMES:
            outcomes.add_metric([of.queue, outcome], of.totals.get(outcome, 0))
        for name, family in reaped.items():
            family.add_metric([of.queue], of.totals.get(name, 0))
    yield from (jobs, paused, halted, outcomes, *reaped.values())


def _of_workers(workers: list[WorkerInfo], own: tuple[str, float] | None) -> Iterator[Metric]:
    yield GaugeMetricFamily("unstuck_workers", "Workers that gave a sign of life lately.", value=len(workers))
    running = GaugeMetricFamily("unstuck_worker_running", "Jobs that run in a worker.", labels=["worker"])
    healthy = GaugeMetricFamily("unstuck_worker_healthy", "1 while it says HEALTHY.", labels=["worker"])
    scan = GaugeMetricFamily(
        "reaper_scan_duration_ms", "How long the last scan of a reaper took.", labels=["worker"]
    )
    if own is not None:
        scan.add_metric([own[0]], own[1])
    for worker in workers:
        running.add_metric([worker.id], worker.running)
        healthy.add_metric([worker.id], float(worker.health.status == HEALTHY))
        if worker.scan_ms is not None:
            scan.add_metric([worker.id], worker.scan_ms)
    yield from (running, healthy, scan)


def _registry(ask: Callable[[], Snapshot | None], scan: Scan = lambda: None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StoreCollector(ask, scan))
    return registry


class MetricsServer:
    """Answers scrapes in threads of its own until closed. ``port`` is the one it listens on."""

    def __init__(
        self, store: Callable[[], Store | ForeignTables], port: int, host: str, scan: Scan = lambda: None
    ) -> None:
        self._reader = _Reader(store)
        app = make_wsgi_app(_registry(self._reader.ask, scan))
        kind = _Server6 if ":" in host else _Server
        try:
            self._http = make_server(host, port, app, server_class=kind, handler_class=_Quiet)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot listen on {host} port {port}: {error.strerror}; choose another"
            ) from None
        self.port = self._http.server_port
        self._reader.start()
        self._thread = threading.Thread(target=self._http.serve_forever, name="unstuck-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._reader.close()


def serve_metrics(
    store: str | Callable[[], Store | ForeignTables],
    port: int,
    host: str = "127.0.0.1",
    *,
    scan: Scan = lambda: None,
) -> MetricsServer:
    """Serve the metrics of a store over HTTP; port 0 picks a free one. Close it, or use it in ``with``."""
    whole("port", port, 0, 65535)
    if callable(store):
        return MetricsServer(store, port, host, scan)
    url = store_url(store)  # a wrong URL is refused now, a store that is down is reported at every scrape
    return MetricsServer(lambda: open_store(url), port, host, scan)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_port = False  # or a second server would take half of the scrapes

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("metrics: a request from %s was cut short", client_address)


class _Server6(_Server):
    address_family = AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a client to say what it wants

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes come all the time; they are no news."""


class _Reader:
    """A store with an event loop of its own, in a thread. Opened at the first scrape, and again after a failure."""

    def __init__(self, store: Callable[[], Store | ForeignTables]) -> None:
        self._make = store
        self._store: Store | ForeignTables | None = None
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._asked: Future[Snapshot | None] | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live()), name="unstuck-metrics-store", daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def ask(self) -> Snapshot | None:
        """Scrapes that come together share one look at the store, so that a slow one does not pile them up."""
        try:
            with self._lock:
                if self._asked is None or self._asked.done():
                    self._asked = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
                asked = self._asked
            return asked.result(PATIENCE + 1.0)  # a driver that blocks its loop cannot keep its own time
        except (TimeoutError, CancelledError):
            return None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)  # nor may it block the caller

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await self._drop()

    async def _look(self) -> Snapshot | None:
        try:
            async with asyncio.timeout(PATIENCE):
                if self._store is None:
                    self._store = await self._make().__aenter__()
                    await self._store.migrate()
                return await snapshot(self._store)
        except Exception as error:  # noqa: BLE001 - as in exposition()
            _log_silence(error)
            await self._drop()
            return None

    async def _drop(self) -> None:
        store, self._store = self._store, None
        try:
            async with asyncio.timeout(1.0):
                if store is not None:
                    await store.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - it is given up either way
            log.debug("metrics: the store could not be closed: %s", error)


def _log_silence(error: Exception) -> None:
    log.warning("metrics: the store does not answer: %s", str(error) or type(error).__name__)
