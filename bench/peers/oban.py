# mypy: ignore-errors
"""Oban for Python on psycopg: ``work 100 uvloop`` runs a hundred jobs at the same time."""

import asyncio
import os
import sys

from oban import Oban, worker
from oban.schema import install

from bench import marks, producer
from bench.peers import loops

AT_ONCE = 5_000


@worker(queue="default")
class Work:
    async def process(self, job) -> None:  # noqa: ANN001
        marks.mark(job.args["n"])


class Producer:
    async def open(self) -> None:
        self.pool = await Oban.create_pool(os.environ["BENCH_URL"])
        self.oban = Oban(pool=self.pool)
        await self.oban.start()

    async def close(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def one(self, number: int) -> None:
        await self.oban.enqueue(Work.new({"n": number, "s": marks.PAD}))

    async def many(self, numbers: range) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            batch = numbers[start : start + AT_ONCE]
            await self.oban.enqueue_many([Work.new({"n": number, "s": marks.PAD}) for number in batch])


async def set_up() -> None:
    pool = await Oban.create_pool(os.environ["BENCH_URL"])
    await install(pool)
    await pool.close()


async def work(at_once: int) -> None:
    pool = await Oban.create_pool(os.environ["BENCH_URL"])
    async with Oban(pool=pool, queues={"default": at_once}):
        await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["setup"]:
            asyncio.run(set_up())
        case ["work", at_once, *options]:
            loops.run(work(int(at_once)), *options)
        case _:
            producer.main(Producer())
