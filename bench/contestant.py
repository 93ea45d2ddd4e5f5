"""A contestant: which programs enqueue and work. What differs between stores is in ``sqlite`` and ``postgres``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
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
OURS = "unstuck"
DEFAULT: tuple[str, ...] = ()


@dataclass
class Contestant:
    """``settings`` are arguments of its worker, of which the best is found and becomes ``best``."""

    name: str
    program: tuple[str, ...]  # enqueues; with "work" it works, unless there is a worker
    done: str  # SQL that says how many of so many jobs are finished for good
    worker: tuple[str, ...] = ()
    settings: tuple[tuple[str, ...], ...] = (DEFAULT,)
    idle: tuple[str, ...] = DEFAULT  # for the latency of an idle worker
    packages: tuple[str, ...] = ()
    version: str = ""
    best: tuple[str, ...] = field(init=False)
    stores: Path = field(init=False)

    def __post_init__(self) -> None:
        self.stores = OUT / "stores" / self.name
        self.best = self.settings[0]

    @property
    def folder(self) -> Path:
        """Where a peer is installed."""
        return OUT / "peers" / self.name

    @property
    def url(self) -> str:
        raise NotImplementedError

    def fresh(self) -> None:
        """Begin with no jobs; nothing of it is left for the disk to write later."""
        self.stores.mkdir(parents=True, exist_ok=True)
        MARKS.unlink(missing_ok=True)
        os.sync()

    def finished(self, jobs: int) -> int:
        raise NotImplementedError

    def run(self, *arguments: str | int) -> dict[str, Any]:
        """Run the producing side and return what it printed."""
        done = subprocess.run(
            [*self.program, *map(str, arguments)],
            cwd=ROOT,
            env=self._env(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=900,
        )
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        return answer

    @contextlib.contextmanager
    def working(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process for the length of a block."""
        command = self.worker or (*self.program, "work")
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

    def _env(self) -> dict[str, str]:
        node = str(self.folder / "node_modules")
        return os.environ | {"BENCH_URL": self.url, "BENCH_MARKS": str(MARKS), "NODE_PATH": node}


def python(module: str, name: str = "") -> tuple[str, ...]:
    """A program of ours, or one in the environment of the peer with that name."""
    interpreter = str(OUT / "peers" / name / "bin" / "python") if name else sys.executable
    return (interpreter, "-m", module)


def our_worker(concurrency: int) -> tuple[str, ...]:
    command = str(Path(sys.executable).parent / "unstuck")
    # Without a supervisor, so that it is the worker's memory that is measured.
    options = ("--processes", "0", "--concurrency", str(concurrency))
    return (command, "worker", "bench.ours:app", *options)
