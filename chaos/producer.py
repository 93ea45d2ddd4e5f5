"""A process that enqueues until it is told to stop: ``python -m chaos.producer NAME PER_SECOND``.

Every job has a key, so that one whose answer was lost is enqueued again without harm. What the store acknowledged is
written to the ledger, and only that.
"""

import os
import random
import signal
import sys
import time

from chaos import program
from chaos.program import app, ledger
from unstuck import StoreError
from unstuck.app.call import Call

BATCH = 5


def call(name: str, n: int, chance: random.Random) -> Call[object]:
    """One job; nine of ten are ordinary."""
    key = f"{name}-{n}"
    seconds = round(chance.choice([0.0, 0.05, 0.2, 1.0, 3.0]), 2)
    kind = chance.random()
    if kind < 0.30:
        return program.on_loop.options(key=key).call(n, seconds)
    if kind < 0.50:
        return program.in_thread.options(key=key).call(n, seconds)
    if kind < 0.56:
        return program.apart.options(key=key).call(n, seconds)
    if kind < 0.66:
        return program.flaky.options(key=key).call(n)
    if kind < 0.80:
        return program.first_stage.options(key=key).call(n)
    if kind < 0.88:
        return program.rated.options(key=key).call(n)
    if kind < 0.90:
        return program.rated_apart.options(key=key).call(n)
    if kind < 0.93:
        return program.panics.options(key=key).call(n)
    if kind < 0.96:
        return program.forks.options(key=key).call(n)
    if kind < 0.98:
        return program.elsewhere.options(key=key).call(n)
    if kind < 0.983:
        return program.leaves_helper.options(key=key).call(n)
    if kind < 0.986:
        return program.deaf.options(key=key).call(n, seconds)
    if kind < 0.989:
        return program.closes_descriptor.options(key=key).call(n)
    if kind < 0.994:
        return program.on_loop.options(key=key, delay=seconds).call(n, 0.0)
    if kind < 0.998:
        return program.blocks.options(key=key).call(n, 1.5)
    return program.poison.options(key=key).call(n)


def enqueue(calls: list[Call[object]]) -> None:
    """Until the store says yes."""
    while True:
        try:
            handles = app.enqueue_many_sync(calls)
        except StoreError:
            time.sleep(0.2)
        else:
            for one, handle in zip(calls, handles, strict=True):
                ledger.note("acknowledged", handle.id, 0, task=one.job.task)
            return


def main() -> None:
    name, rate = sys.argv[1], float(sys.argv[2])
    chance = random.Random(name)
    n = 0
    while True:
        began = time.monotonic()
        if n % 400 == 200:  # as a server that was loaded before it forked its workers
            if (pid := os.fork()) == 0:
                signal.alarm(120)
                enqueue([call(f"{name}-forked-{n}", k, chance) for k in range(BATCH)])
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            ledger.note("forked", "", 0, status=status)
        enqueue([call(name, n + k, chance) for k in range(BATCH)])
        n += BATCH
        time.sleep(max(0.0, BATCH / rate - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
