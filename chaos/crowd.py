"""The processes of a run: supervisors with their workers in two groups, and producers."""

import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from support.kin import PROC, processes
from support.ledger import Ledger
from support.processes import Child

from chaos.place import Place

ROOT = Path(__file__).resolve().parent.parent
WORKER_GROUPS = ("west", "east")


class Crowd:
    """Starts them, and starts another where one has ended."""

    def __init__(self, where: Place, folder: Path, rate: float, chance: random.Random) -> None:
        self.ledger = Ledger(folder / "ledger")
        self._where = where
        self._folder = folder
        self._rate = rate
        self._chance = chance
        self._stack = ExitStack()
        self._started = 0
        self.supervisors: dict[str, Child] = {}
        self.producers: dict[str, Child] = {}
        self.exits: list[tuple[str, int]] = []  # of supervisors that nobody killed

    def __enter__(self) -> Self:
        for group in WORKER_GROUPS:
            self.supervise(group)
        for name in ("one", "two"):
            self.produce(name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def supervise(self, group: str) -> None:
        options = ["--processes", "2", "--concurrency", "8", "--recovery", "2"]
        argv = [sys.executable, "-m", "unstuck", "worker", "chaos.program:app", *options]
        self.supervisors[group] = self._child(argv, group, group)

    def produce(self, name: str) -> None:
        self._started += 1
        argv = [sys.executable, "-m", "chaos.producer", f"{name}-{self._started}", str(self._rate / 2)]
        self.producers[name] = self._child(argv, f"producer-{name}", "producers")

    def keep_supervisors(self) -> None:
        """Start another for each that has ended by itself."""
        for group, child in list(self.supervisors.items()):
            if (code := child.exit_code) is not None:
                self.exits.append((group, code))
                self.supervise(group)

    def keep(self) -> None:
        """The same, and producers."""
        self.keep_supervisors()
        for name, child in list(self.producers.items()):
            if child.exit_code is not None:
                self.produce(name)

    def workers(self, group: str) -> list[int]:
        """The worker processes of a group's supervisor."""
        parent = self.supervisors[group].pid
        found = [pid for pid, entry in processes().items() if entry.parent == parent]
        return sorted(pid for pid in found if b"--under" in _argv(pid))

    def one_worker(self) -> tuple[str, int] | None:
        found = [(group, pid) for group in WORKER_GROUPS for pid in self.workers(group)]
        return self._chance.choice(found) if found else None

    def fork_servers(self) -> list[tuple[int, int]]:
        """Each with the worker it belongs to."""
        entries = processes()
        owners = {pid for group in WORKER_GROUPS for pid in self.workers(group)}
        return [
            (pid, entry.parent)
            for pid, entry in entries.items()
            if entry.parent in owners and b"unstuck.worker.isolation.forkserver" in _argv(pid)
        ]

    def raw_lines(self) -> Iterator[str]:
        """What processes printed past the log, whose lines are JSON."""
        for file in sorted(self._folder.glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()
            yield from (line for line in lines if not line.startswith("{"))

    def _child(self, argv: list[str], name: str, group: str) -> Child:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "apps")])
        env = {"UNSTUCK_STORE": self._where.urls[group], "PYTHONPATH": paths, **self.ledger.env()}
        log = self._folder / f"{name}.log"
        return self._stack.enter_context(Child(argv, log, env=env, cwd=self._folder))


def owner_pid(owner: str) -> int:
    """The process of a worker, which its name ends with, but for eight digits of chance."""
    found = re.search(r"-(\d+)-[0-9a-f]{8}$", owner)
    return int(found[1]) if found else 0


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _argv(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""
