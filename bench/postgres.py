"""The contestants on PostgreSQL: each has a database of the bench's own server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from bench.contestant import OURS, ROOT, Contestant, our_worker, python
from bench.server import Server

READY = 20.0  # seconds
UVLOOP = "uvloop"
WAITING = "SELECT FROM pg_locks WHERE NOT granted HAVING count(DISTINCT pid) >= %(workers)s"


@dataclass
class OnServer(Contestant):
    """Its database tells what is done; ``%(jobs)s`` in that SQL is how many were enqueued."""

    server: Server | None = None
    _open: psycopg.Connection[tuple[int]] | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url(self.database)

    @property
    def database(self) -> str:
        return self.name.replace("-", "_")

    def set_up(self) -> None:
        """Make the empty database that every fresh one is a copy of."""
        assert self.server is not None
        self.server.create(self.database)
        self.run("setup")
        self.keep("empty")

    def keep(self, name: str) -> str:
        """Put the database aside as a template."""
        assert self.server is not None
        self._close()
        return self.server.rename(self.database, f"{self.database}_{name}")

    def fresh(self, template: str | None = None) -> None:
        """Begin with no jobs, or with those of another database."""
        assert self.server is not None
        self._close()
        self.server.create(self.database, template or f"{self.database}_empty")
        super().fresh()

    def settle_down(self) -> None:
        """Nothing of the filling is left for the server to do later, and it knows its tables: the same for all."""
        assert self.server is not None
        self.server.execute("ANALYZE", self.database)
        self.server.execute("CHECKPOINT", self.database)

    def finished(self, jobs: int) -> int:
        if self._open is None:
            self._open = psycopg.connect(self.url, autocommit=True)
        row = self._open.execute(self.done.encode(), {"jobs": jobs}).fetchone()
        assert row is not None
        return int(row[0])

    @contextlib.contextmanager
    def held(self, table: str, workers: int) -> Iterator[None]:
        """Lock ``table`` for the block, which starts workers, and until they all wait: they begin as one."""
        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            yield
            end = time.monotonic() + READY
            while connection.execute(WAITING, {"workers": workers}).fetchone() is None:
                if time.monotonic() > end:
                    raise RuntimeError(f"{workers} workers of {self.name} did not all begin to lease")
                time.sleep(0.05)
            time.sleep(1.5)  # one of them may have several connections

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Somebody reads in this database and does not end the transaction: no row that dies can be removed."""
        with psycopg.connect(self.url) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SELECT count(*) FROM pg_class")
            yield

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def ours(server: Server, concurrency: int) -> OnServer:
    return OnServer(
        name=OURS,
        program=python("bench.ours"),
        done="SELECT coalesce(sum(value), 0)::bigint FROM unstuck.counters WHERE name = 'completed'",
        worker=our_worker(concurrency),
        server=server,
    )


def peers(server: Server) -> list[OnServer]:
    return [
        OnServer(
            name="pgqueuer",
            program=python("bench.peers.pgqueuer", "pgqueuer"),
            done="SELECT %(jobs)s - count(*) FROM pgqueuer",
            settings=(("10",), ("100", UVLOOP), ("500", UVLOOP)),  # jobs fetched at once
            idle=("10",),
            packages=("pgqueuer[asyncpg]>=1.6", UVLOOP),
            server=server,
        ),
        OnServer(
            name="procrastinate",
            program=python("bench.peers.procrastinate", "procrastinate"),
            done="SELECT %(jobs)s - count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
            settings=(("20",), ("50", UVLOOP, "delete"), ("100", UVLOOP)),  # concurrency
            idle=("20",),
            packages=("procrastinate>=3.10", "psycopg[binary,pool]", UVLOOP),
            server=server,
        ),
        OnServer(
            name="oban",
            program=python("bench.peers.oban", "oban"),
            done="""SELECT %(jobs)s - count(*) FROM oban_jobs
                WHERE state IN ('available', 'executing', 'scheduled', 'retryable')""",
            settings=(("10",), ("100", UVLOOP), ("500", UVLOOP)),  # jobs at the same time
            idle=("10",),
            packages=("oban>=0.7", "psycopg[binary,pool]", UVLOOP),
            server=server,
        ),
        OnServer(
            name="graphile-worker",
            program=("node", str(ROOT / "bench" / "peers" / "graphile.cjs")),
            done="SELECT %(jobs)s - count(*) FROM graphile_worker._private_jobs",
            settings=(
                ("24",),
                ("24", "500", "0"),
                ("10", "200", "5"),
            ),  # concurrency, local queue, ms of batching
            idle=("10",),
            packages=("graphile-worker@>=0.17",),
            server=server,
        ),
    ]
