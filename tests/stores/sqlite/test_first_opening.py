"""Processes that open a new file at the same moment all get it: none is told that it is locked."""

import subprocess
import sys
from pathlib import Path

TOGETHER = """
import multiprocessing, sys
from unstuck.stores.sqlite.connection import connect, create

def open_each(barrier, errors):
    for number in range(300):
        path = f"{sys.argv[1]}/{number}.db"
        barrier.wait()
        create(path)
        try:
            connect(path).close()
        except Exception as error:
            errors.put(repr(error))

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    barrier, errors = fork.Barrier(6), fork.SimpleQueue()
    processes = [fork.Process(target=open_each, args=(barrier, errors)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    while not errors.empty():
        print(errors.get())
"""


def test_a_new_file_can_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", TOGETHER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
