"""The effects ledger: what handlers really did, told by themselves, outside of the store under test."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Self

VARIABLE = "UNSTUCK_LEDGER"


@dataclass(frozen=True, slots=True)
class Record:
    """One line. ``at`` is in monotonic nanoseconds, which all processes of a machine share."""

    kind: str
    job: str
    fence: int
    pid: int
    at: int
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """One process at work on one job. ``end`` is the process's death if that came first, None if unknown."""

    job: str
    fence: int
    pid: int
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two runs of one job at the same time, from ``begin`` to ``end``, or to nobody knows when."""

    older: Run
    newer: Run
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """An append-only file that any number of processes write to at once.

    What a killed process wrote before stays; what a crash of the machine keeps is not promised.
    """

    path: Path

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The ledger that the test named for this process, as in ``Child(..., env=ledger.env())``."""
        return cls(Path(environ[VARIABLE]))

    def env(self) -> dict[str, str]:
        return {VARIABLE: str(self.path.absolute())}

    def begin(self, job: str, fence: int) -> None:
        self.note("begin", job, fence)

    def end(self, job: str, fence: int) -> None:
        self.note("end", job, fence)

    def note(self, kind: str, job: str, fence: int, /, **facts: object) -> None:
        """Record that this happened just now in this process. The facts must be fit for JSON."""
        self._append(Record(kind, job, fence, os.getpid(), time.monotonic_ns(), facts))

    def died(self, pid: int) -> None:
        """Record, from outside, that a process is dead: the runs it left open were over by now."""
        self._append(Record("died", "", 0, pid, time.monotonic_ns()))

    def read(self) -> list[Record]:
        """All records in the order written, save those whose writer did not live to complete them."""
        return [record for line in self._lines() if (record := _parse(line))]

    def torn(self) -> int:
        """How many records were left incomplete."""
        return sum(_parse(line) is None for line in self._lines())

    def started(self, job: str) -> int:
        return sum(record.kind == "begin" and record.job == job for record in self.read())

    def finished(self, job: str) -> int:
        return sum(record.kind == "end" and record.job == job for record in self.read())

    def runs(self) -> list[Run]:
        """Every run, in the order of their beginnings."""
        runs: list[Run] = []
        begun: dict[tuple[str, int, int], list[Record]] = defaultdict(list)
        for record in sorted(self.read(), key=lambda record: record.at):
            lease = (record.job, record.fence, record.pid)
            if record.kind == "begin":
                begun[lease].append(record)
            elif record.kind == "end" and begun[lease]:
                runs.append(_run(begun[lease].pop(), record.at))
            elif record.kind == "died":
                for orphaned in [lease for lease in begun if lease[2] == record.pid]:
                    runs += [_run(first, record.at) for first in begun.pop(orphaned)]
        runs += [_run(first, None) for unfinished in begun.values() for first in unfinished]
        return sorted(runs, key=lambda run: run.begin)

    def overlaps(self) -> list[Overlap]:
        """Where one job ran twice at the same time. A run whose end is unknown overlaps all later ones."""
        by_job: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs():
            by_job[run.job].append(run)
        pairs = [pair for runs in by_job.values() for pair in combinations(runs, 2)]
        return [
            _overlap(older, newer) for older, newer in pairs if older.end is None or newer.begin < older.end
        ]

    def doubles(self) -> dict[str, tuple[int, ...]]:
        """Jobs that ran to their end more than once, each with the fences under which they did."""
        fences: dict[str, tuple[int, ...]] = defaultdict(tuple)
        for record in self.read():
            if record.kind == "end":
                fences[record.job] += (record.fence,)
        return {job: ended for job, ended in fences.items() if len(ended) > 1}

    def _append(self, record: Record) -> None:
        # The first line break ends the line of a writer that was killed half-way.
        line = f"\n{json.dumps(asdict(record))}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(file, line) != len(line):
                raise OSError(f"no room for a whole record in {self.path}")
        finally:
            os.close(file)

    def _lines(self) -> list[bytes]:
        try:
            return [line for line in self.path.read_bytes().split(b"\n") if line]
        except FileNotFoundError:  # nobody did anything yet
            return []


def _parse(line: bytes) -> Record | None:
    try:
        return Record(**json.loads(line))
    except ValueError:
        return None


def _run(begin: Record, end: int | None) -> Run:
    return Run(begin.job, begin.fence, begin.pid, begin.at, end)


def _overlap(older: Run, newer: Run) -> Overlap:
    ends = [run.end for run in (older, newer) if run.end is not None]
    return Overlap(older, newer, newer.begin, min(ends, default=None))
