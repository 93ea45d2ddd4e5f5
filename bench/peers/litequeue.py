# mypy: ignore-errors
"""litequeue: a queue without a worker, so the loop around it is ours."""

import json
import os
import sys
import time

from litequeue import LiteQueue

from bench import marks, producer

POLL = 0.01


class Lite:
    async def open(self) -> None:
        self.queue = LiteQueue(os.environ["BENCH_URL"].removeprefix("sqlite:///"))

    async def close(self) -> None:
        self.queue.close()

    async def one(self, number: int) -> None:
        self.queue.put(json.dumps({"n": number, "s": marks.PAD}))

    async def many(self, numbers: range) -> None:
        with self.queue.transaction():  # twice as fast as single puts
            for number in numbers:
                self.queue.put(json.dumps({"n": number, "s": marks.PAD}))


def work() -> None:
    queue = LiteQueue(os.environ["BENCH_URL"].removeprefix("sqlite:///"))
    while True:
        if (message := queue.pop()) is None:
            time.sleep(POLL)
            continue
        marks.mark(json.loads(message.data)["n"])
        if hasattr(message, "claim_id"):
            queue.done(message.message_id, claim_id=message.claim_id)
        else:  # 0.9, the newest release for Python 3.11
            queue.done(message.message_id)


if __name__ == "__main__":
    work() if sys.argv[1] == "work" else producer.main(Lite())
