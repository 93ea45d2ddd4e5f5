"""A contestant: which programs enqueue and work, and how its file tells what is done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
SHARED = Path("/dev/shm")  # in memory, where there is one
MARKS = Path(SHARED if SHARED.is_dir() else tempfile.gettempdir(), f"bench-{os.getpid()}.marks")


@dataclass
class Contestant:
    """``done`` is SQL that says how many of the ``:jobs`` enqueued ones are finished for good."""

    name: str
    module: str
    done: str
    python: Path = Path(sys.executable)
    worker: tuple[str, ...] = ()
    version: str = ""
    stores: Path = field(init=False)

    def __post_init__(self) -> None:
        self.stores = OUT / "stores" / self.name

    @property
    def db(self) -> Path:
        return self.stores / "jobs.db"

    def fresh(self, template: Path | None = None) -> None:
        """Begin with no jobs, or with those of another file; nothing of it is left for the disk to write later."""
        shutil.rmtree(self.stores, ignore_errors=True)
        self.stores.mkdir(parents=True)
        MARKS.unlink(missing_ok=True)
        if template is not None:
            shutil.copyfile(template, self.db)
        os.sync()

    def run(self, *arguments: str | int) -> dict[str, Any]:
        """Run the producing side and return what it printed."""
        command = [str(self.python), "-m", self.module, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=ROOT, env=self._env(), stdout=subprocess.PIPE, text=True, check=True, timeout=900
        )
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        return answer

    @contextlib.contextmanager
    def working(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process for the length of a block."""
        command = self.worker or (str(self.python), "-m", self.module, "work")
        with (
            (self.stores / "worker.log").open("ab") as log,
            subprocess.Popen(
                [*command, *arguments], cwd=ROOT, env=self._env(), stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()

    def finished(self, jobs: int) -> int:
        with contextlib.closing(sqlite3.connect(self.db, timeout=10)) as file:
            number: int = file.execute(self.done, {"jobs": jobs}).fetchone()[0]
            return number

    def _env(self) -> dict[str, str]:
        return os.environ | {"BENCH_DB": str(self.db), "BENCH_MARKS": str(MARKS)}


def ours(concurrency: int) -> Contestant:
    command = Path(sys.executable).parent / "unstuck"
    return Contestant(
        name="unstuck",
        module="bench.ours",
        done="SELECT coalesce(sum(value), 0) FROM counter WHERE name = 'completed'",
        # Without a supervisor, so that it is the worker's memory that is measured.
        worker=(
            str(command),
            "worker",
            "bench.ours:app",
            "--processes",
            "0",
            "--concurrency",
            str(concurrency),
        ),
    )


def litequeue() -> Contestant:
    return Contestant(
        name="litequeue",
        module="bench.peers.litequeue",
        done="SELECT count(*) FROM Queue WHERE status NOT IN (0, 1)",
    )


def huey() -> Contestant:
    # It removes a task when it fetches it: what is not there any more is as done as it will ever be.
    return Contestant(
        name="huey", module="bench.peers.huey", done="SELECT :jobs - (SELECT count(*) FROM task)"
    )
