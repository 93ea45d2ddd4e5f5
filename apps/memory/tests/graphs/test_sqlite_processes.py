"""Several processes on one file of a SQLite graph: those that begin it together, and forks."""

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import apsw
from support.folders import ROOT
from support.processes import Child

PATIENCE = 300.0
ENV = {"PYTHONPATH": str(ROOT / "apps/memory")}

MIGRATE = """
import asyncio, sys
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.values import NewEntity

async def main(path, name):
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        [answer] = await graph.create_entities("p", [NewEntity(name=name, entity_type="t")])
        assert answer.created

asyncio.run(main(*sys.argv[1:]))
"""

OPEN_TOGETHER = """
import multiprocessing, sys
from unstuck_memory.graphs.sqlite.connection import connect

def open_each(barrier, errors):
    for number in range(300):
        barrier.wait()
        try:
            connect(f"{sys.argv[1]}/{number}.db").close()
        except Exception as error:
            errors.put(repr(error))

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

FORK = """
import asyncio, os, sys, threading, warnings
from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.values import NewEntity

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
path = sys.argv[1]

async def attempt(what, work):
    try:
        await work
    except GraphUnavailable as error:
        print(what, "refused:", error, flush=True)
    else:
        print(what, "worked", flush=True)

async def opened():
    async with SqliteGraph(path) as graph:
        await graph.create_entities("p", [NewEntity(name="of the child", entity_type="t")])

async def main():
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        if (child := os.fork()) == 0:
            new = NewEntity(name="of the child", entity_type="t")
            await attempt("write", graph.create_entities("p", [new]))
            await attempt("read", graph.now())
            await attempt("export", graph.export("p").__anext__())
            thread = threading.Thread(target=asyncio.run, args=[attempt("open", opened())])
            thread.start()
            thread.join()
            os._exit(0)  # the event loop is the parent's
        assert os.waitpid(child, 0)[1] == 0
        new = NewEntity(name="Ann", entity_type="t")
        await attempt("the parent's write", graph.create_entities("p", [new]))

asyncio.run(main())
if (child := os.fork()) == 0:
    asyncio.run(attempt("open after the parent closed", opened()))
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
"""


def _run(program: str, log: Path, *args: str) -> Child:
    return Child([sys.executable, "-c", program, *args], log, env=ENV)


def test_eight_processes_may_begin_a_file_together(tmp_path: Path) -> None:
    path = tmp_path / "graph.db"
    with ExitStack() as stack:
        children = [
            stack.enter_context(_run(MIGRATE, tmp_path / f"{number}.log", str(path), f"entity {number}"))
            for number in range(8)
        ]
        for child in children:
            assert child.wait(PATIENCE) == 0, child.log.read_text()
    connection = apsw.Connection(str(path))
    [(count,)] = connection.execute("SELECT count(*) FROM entity WHERE valid_to IS NULL")
    assert count == 8
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    connection.close()


def test_a_fork_is_refused_in_one_clear_line_and_the_parent_goes_on(tmp_path: Path) -> None:
    """A child would write without any lock: SQLite believes that it has those of its parent."""
    path = tmp_path / "graph.db"
    with _run(FORK, tmp_path / "log", str(path)) as child:
        assert child.wait(PATIENCE) == 0, child.log.read_text()
    *refused, opened, parent, later = child.log.read_text().splitlines()
    for what, line in zip(("write", "read", "export"), refused, strict=True):
        assert re.fullmatch(rf"{what} refused: graph file .* is a fork: open the graph after the fork", line)
    assert re.fullmatch("open refused: .* open it after the fork only.*", opened)
    assert (parent, later) == ("the parent's write worked", "open after the parent closed worked")


def test_a_new_file_can_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", OPEN_TOGETHER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
