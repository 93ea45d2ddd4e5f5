# mypy: ignore-errors
"""dramatiq on Redis: ``work 8`` has eight threads. It has no bulk way."""

import logging
import os
import signal
import sys
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench import marks, producer

broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="work")
def work(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Dramatiq:
    async def open(self) -> None:
        pass

    async def close(self) -> None:
        broker.close()

    async def one(self, number: int) -> None:
        work.send(number, marks.PAD)

    async def many(self, numbers: range) -> None:
        for number in numbers:
            work.send(number, marks.PAD)


def consume(threads: int) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    dramatiq.Worker(broker, worker_threads=threads).start()
    stop.wait()
    os._exit(0)


if __name__ == "__main__":
    consume(int(sys.argv[2])) if sys.argv[1] == "work" else producer.main(Dramatiq())
