"""Writers that are killed between the graph's commit and the queue: ``python -m support_memory.programs.dying_writer PLACE FOLDER FIRST COUNT``.

The graph is at the place, its jobs are in the folder. Each writer is a process of its own, forked before anything is opened, and
prints the name of its entity when that is committed. Every second one dies before it calls the queue, the others in the middle of
that.
"""
# ruff: noqa: T201

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.memory import Memory
from unstuck_memory.values import Entity, NewEntity

from support_memory.places import place

MIDDLE = 0.004  # seconds in which most calls of the queue are over


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(EmbeddingJobs):
    late = False

    async def schedule(self, entities: Sequence[Entity]) -> list[object]:  # type: ignore[override]
        print(entities[0].name, flush=True)
        if self.late:
            await self._queue.jobs()  # which is opened by now, as in a program that has run for a while
            threading.Thread(target=self._soon, daemon=True).start()
            await super().schedule(entities)
            await asyncio.sleep(1)
        die()
        return []

    def _soon(self) -> None:
        time.sleep(random.random() * MIDDLE)  # noqa: S311 - not a secret
        die()


async def write(where: str, folder: Path, number: int) -> None:
    async with (
        place(where).graph() as graph,
        Dying(graph, MockProvider(), f"sqlite:///{folder / 'jobs.db'}") as jobs,
    ):
        await graph.migrate()
        jobs.late = number % 2 == 1
        entity = NewEntity(name=f"e{number}", entity_type="thing", observations=("one", f"number {number}"))
        await Memory(graph, "default", jobs).create_entities([entity])


def main(where: str, folder: str, first: str, count: str) -> None:
    for number in range(int(first), int(first) + int(count)):
        if (child := os.fork()) == 0:
            asyncio.run(write(where, Path(folder), number))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"writer {number} was not killed: {status}"


if __name__ == "__main__":
    main(*sys.argv[1:])
