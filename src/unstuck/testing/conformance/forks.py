"""A fork while the store is open: the child has a copy of it, and must neither use it nor harm its parent's."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from unstuck.operations.verify import broken_rules
from unstuck.protocol.operators import Filter
from unstuck.testing.harnesses.harness import Harness

# Each acknowledged number is printed, by whichever process enqueued it.
_HEAD = """
import asyncio, multiprocessing, os, sys, threading
from unstuck import Unstuck, open_store
from unstuck.protocol.errors import StoreUnavailable

app = Unstuck(sys.argv[1])

@app.task(queue="forks")
async def work(n: int) -> None: ...

def enqueue(numbers):
    for n in numbers:
        assert work.enqueue_sync(n).created
        os.write(1, b"%d\\n" % n)

def waited(pid):
    assert os.waitpid(pid, 0)[1] == 0
"""
# A server that loads the program first: each child ends as programs do, so that all that it inherited is let go of.
_PRELOADED = """
enqueue([0])
children = []
for number in range(1, 4):
    if (pid := os.fork()) == 0:
        enqueue(range(100 * number, 100 * number + 5))
        sys.exit()
    children.append(pid)
enqueue(range(1, 6))
for pid in children:
    waited(pid)
enqueue(range(6, 11))
"""
# Other threads enqueue at the moment of the fork. Not for the first time: Python itself cannot fork during an import.
_BUSY = """
enqueue([0])
done = threading.Event()

def busy(number):
    n = 1000 * number
    while not done.is_set():
        n += 1
        enqueue([n])

threads = [threading.Thread(target=busy, args=[number], daemon=True) for number in range(1, 4)]
for thread in threads:
    thread.start()
for number in range(4, 10):
    child = multiprocessing.get_context("fork").Process(target=enqueue, args=[range(1000 * number, 1000 * number + 3)])
    child.start()
    child.join()
    assert child.exitcode == 0
done.set()
for thread in threads:
    thread.join()
"""
# A daemon: its parents are gone. So that somebody waits for it, the first of them holds the output open.
_DAEMON = """
enqueue([0])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        enqueue(range(1, 6))
        sys.exit()
    os._exit(0)
os.wait()
enqueue([6])
"""
_INHERITED = """
async def answers(store):  # a server on a busy machine may take longer than a call waits
    for _ in range(20):
        try:
            return await store.count()
        except StoreUnavailable:
            await asyncio.sleep(0.2)
    return await store.count()

async def main():
    async with open_store(sys.argv[1]) as store:
        await answers(store)
        if (pid := os.fork()) == 0:
            try:
                store.count().send(None)
            except StoreUnavailable as error:
                print(error, flush=True)
            try:
                store.__aexit__(None, None, None).send(None)
            except StopIteration:
                print("left alone", flush=True)
            os._exit(0)
        waited(pid)
        await answers(store)
        print("still open", flush=True)

asyncio.run(main())
"""


async def _ran(harness: Harness, program: str) -> list[str]:
    # -W: Python 3.12 and later warn of a fork beside threads, which is what this is about.
    argv = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _HEAD + program, harness.url]
    ran = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=240, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


@pytest.mark.parametrize(
    "program", [_PRELOADED, _BUSY, _DAEMON], ids=["preloaded", "beside busy threads", "daemon"]
)
async def test_processes_forked_after_the_first_enqueue_enqueue_safely(
    harness: Harness, program: str
) -> None:
    acknowledged = sorted(int(line) for line in await _ran(harness, program))

    found: list[int] = []
    cursor = None
    while True:
        page = await harness.store.find(Filter(queue="forks"), limit=1000, cursor=cursor)
        found += [job.payload["n"] for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
    assert sorted(found) == acknowledged
    assert await broken_rules(harness.store) == []


async def test_a_store_that_was_open_before_a_fork_is_refused_in_the_child(harness: Harness) -> None:
    refused, *others = await _ran(harness, _INHERITED)

    assert refused.startswith("the store was opened by process ")
    assert "is a fork: open it again here" in refused
    assert others == ["left alone", "still open"]
