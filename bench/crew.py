"""Several worker processes on one PostgreSQL database, and what a job costs them and the server."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from bench import measure
from bench.postgres import OnServer
from bench.rows import TABLE
from bench.server import Server, seconds


class Worked(NamedTuple):
    """Jobs a second, and the milliseconds of processor that each took of all workers and of the server."""

    rate: float
    milliseconds: float


def drain(server: Server, contestant: OnServer, jobs: int, size: int) -> Worked:
    """Let ``size`` workers, which begin at the same time, finish all jobs there are."""
    already = contestant.finished(jobs)
    with contextlib.ExitStack() as stack:
        with contestant.held(TABLE, size):
            workers = [stack.enter_context(contestant.working()) for _ in range(size)]

        def used() -> float:
            return server.cpu() + sum(seconds(worker.pid) for worker in workers)

        before = used()
        rate = measure.rate(contestant, jobs, already, *workers)
        return Worked(rate, (used() - before) / jobs * 1000)
