"""The contestants on SQLite: each has a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from bench.contestant import OURS, Contestant, our_worker, python


class OnFile(Contestant):
    """Its file tells what is done; ``:jobs`` in that SQL is how many were enqueued."""

    @property
    def file(self) -> Path:
        return self.stores / "jobs.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def fresh(self, template: Path | None = None) -> None:
        """Begin with no jobs, or with those of another file."""
        shutil.rmtree(self.stores, ignore_errors=True)
        super().fresh()
        if template is not None:
            shutil.copyfile(template, self.file)
            os.sync()

    def finished(self, jobs: int) -> int:
        with contextlib.closing(sqlite3.connect(self.file, timeout=10)) as file:
            number: int = file.execute(self.done, {"jobs": jobs}).fetchone()[0]
            return number


def ours(concurrency: int) -> OnFile:
    return OnFile(
        name=OURS,
        program=python("bench.ours"),
        done="SELECT coalesce(sum(value), 0) FROM counter WHERE name = 'completed'",
        worker=our_worker(concurrency),
    )


def litequeue() -> OnFile:
    return OnFile(
        name="litequeue",
        program=python("bench.peers.litequeue", "litequeue"),
        done="SELECT count(*) FROM Queue WHERE status NOT IN (0, 1)",
        packages=("litequeue>=0.14",),
    )


def huey() -> OnFile:
    return OnFile(
        name="huey",
        program=python("bench.peers.huey", "huey"),
        # It removes a task when it fetches it: what is not there any more is as done as it will ever be.
        done="SELECT :jobs - (SELECT count(*) FROM task)",
        settings=(("1",), ("4",), ("8",)),  # threads
        idle=("1", "fast"),
        packages=("huey>=3.2",),
    )
