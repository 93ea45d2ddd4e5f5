# mypy: ignore-errors
"""Procrastinate on psycopg: ``work 50 uvloop delete`` runs fifty jobs at once and deletes what succeeded."""

import asyncio
import logging
import os
import sys

import procrastinate

from bench import marks, producer
from bench.peers import loops

AT_ONCE = 5_000
logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_URL"], min_size=1, max_size=20)
)


@app.task(name="work")
async def task(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Procrastinate:
    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def one(self, number: int) -> None:
        await task.defer_async(n=number, s=marks.PAD)

    async def many(self, numbers: range) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            batch = numbers[start : start + AT_ONCE]
            await task.batch_defer_async(*({"n": number, "s": marks.PAD} for number in batch))


async def set_up() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def work(concurrency: int, *, delete: bool) -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=concurrency, delete_jobs="successful" if delete else "never")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["setup"]:
            asyncio.run(set_up())
        case ["work", concurrency, *options]:
            loops.run(work(int(concurrency), delete="delete" in options), *options)
        case _:
            producer.main(Procrastinate())
