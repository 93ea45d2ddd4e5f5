# mypy: ignore-errors
"""taskiq on Redis streams: ``work 100 uvloop`` runs a hundred jobs at the same time. It has no bulk way."""

import asyncio
import os
import sys

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench import marks, producer
from bench.peers import loops

AT_ONCE = 200
broker = RedisStreamBroker(os.environ["BENCH_URL"])


@broker.task(task_name="work")
async def work(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Taskiq:
    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def one(self, number: int) -> None:
        await work.kiq(number, marks.PAD)

    async def many(self, numbers: range) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            batch = numbers[start : start + AT_ONCE]
            await asyncio.gather(*(work.kiq(number, marks.PAD) for number in batch))


async def consume(at_once: int) -> None:
    broker.is_worker_process = True
    await run_receiver_task(broker, run_startup=True, max_async_tasks=at_once, max_prefetch=at_once)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", at_once, *options]:
            loops.run(consume(int(at_once)), *options)
        case _:
            producer.main(Taskiq())
