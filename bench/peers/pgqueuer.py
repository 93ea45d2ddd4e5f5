# mypy: ignore-errors
"""PgQueuer on asyncpg: ``work 100 uvloop`` fetches a hundred jobs at once."""

import asyncio
import json
import os
import sys

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries

from bench import marks, producer
from bench.peers import loops

AT_ONCE = 5_000


def payload(number: int) -> bytes:
    return json.dumps({"n": number, "s": marks.PAD}).encode()


async def connect() -> asyncpg.Connection:
    return await asyncpg.connect(os.environ["BENCH_URL"])


class Pgqueuer:
    async def open(self) -> None:
        self.connection = await connect()
        self.queries = Queries.from_asyncpg_connection(self.connection)

    async def close(self) -> None:
        await self.connection.close()

    async def one(self, number: int) -> None:
        await self.queries.enqueue("work", payload(number))

    async def many(self, numbers: range) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            payloads = [payload(number) for number in numbers[start : start + AT_ONCE]]
            await self.queries.enqueue(["work"] * len(payloads), payloads, [0] * len(payloads))


async def set_up() -> None:
    connection = await connect()
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def work(at_once: int) -> None:
    queue = PgQueuer.from_asyncpg_connection(await connect())

    @queue.entrypoint("work")
    async def work(job) -> None:  # noqa: ANN001
        marks.mark(json.loads(job.payload)["n"])

    await queue.run(batch_size=at_once)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["setup"]:
            asyncio.run(set_up())
        case ["work", at_once, *options]:
            loops.run(work(int(at_once)), *options)
        case _:
            producer.main(Pgqueuer())
