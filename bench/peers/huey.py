# mypy: ignore-errors
"""huey on SQLite, with its own consumer: ``work 4`` has four threads, ``work 1 fast`` polls every 5 ms."""

import logging
import os
import sys

from huey import SqliteHuey

from bench import marks, producer

huey = SqliteHuey("bench", filename=os.environ["BENCH_URL"].removeprefix("sqlite:///"), results=False)


@huey.task(name="work")
def work(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Huey:
    async def open(self) -> None:
        huey.storage.queue_size()

    async def close(self) -> None:
        huey.storage.close()

    async def one(self, number: int) -> None:
        work(number, marks.PAD)

    async def many(self, numbers: range) -> None:
        for number in numbers:  # it has no bulk
            work(number, marks.PAD)


def consume(threads: int, *, fast: bool) -> None:
    logging.getLogger("huey").setLevel(logging.WARNING)
    pace = {"initial_delay": 0.005, "max_delay": 0.01} if fast else {}
    huey.create_consumer(worker_type="thread", workers=threads, **pace).run()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        consume(int(sys.argv[2]), fast=sys.argv[3:] == ["fast"])
    else:
        producer.main(Huey())
