"""Unstuck as a contestant: the app, its only task, and how jobs are enqueued."""

from __future__ import annotations

import os
import sys

from bench import marks, producer
from unstuck import Task, Unstuck

app = Unstuck(f"sqlite:///{os.environ['BENCH_DB']}")


@app.task
async def work(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Ours:
    def __init__(self, task: Task[..., None]) -> None:
        self.task = task

    async def open(self) -> None:
        await app.store()

    async def close(self) -> None:
        await app.__aexit__(None, None, None)

    async def one(self, number: int) -> None:
        await self.task.enqueue(n=number, s=marks.PAD)

    async def many(self, numbers: range) -> None:
        await app.enqueue_many([self.task.call(n=number, s=marks.PAD) for number in numbers])


if __name__ == "__main__":
    # Delayed for longer than the run takes, and more urgent than what is due.
    late = sys.argv[3:] == ["delayed"]
    producer.main(Ours(work.options(delay=7200, priority=9) if late else work))
