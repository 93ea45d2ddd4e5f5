"""What the ledger says of real workers, and what it makes of their deaths."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.folders import IMPORTABLE
from support.ledger import Ledger
from support.processes import Child

STUCK = """
import time
from support.ledger import Ledger
Ledger.from_env().begin("job", {fence})
print("begun", flush=True)
time.sleep(60)
"""
BUSY = """
from support.ledger import Ledger
ledger = Ledger.from_env()
for number in range(250):
    ledger.note("step", "job", 1, number=number, padding="." * number)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def worker(program: str, ledger: Ledger, log: Path) -> Child:
    return Child([sys.executable, "-c", program], log, env={**ledger.env(), "PYTHONPATH": IMPORTABLE})


def test_an_unused_ledger_is_empty(ledger: Ledger) -> None:
    assert (ledger.read(), ledger.runs(), ledger.overlaps(), ledger.doubles()) == ([], [], [], {})


def test_a_note_keeps_its_facts_its_process_and_its_place_in_time(ledger: Ledger) -> None:
    ledger.begin("job", 1)
    ledger.note("published", "job", 1, kind="video", size=3)

    begin, published = ledger.read()
    assert (published.kind, published.job, published.fence) == ("published", "job", 1)
    assert (published.pid, published.facts) == (os.getpid(), {"kind": "video", "size": 3})
    assert begin.at < published.at


def test_runs_one_after_the_other_do_not_overlap_but_can_be_double(ledger: Ledger) -> None:
    for fence in (1, 2):
        ledger.begin("job", fence)
        ledger.end("job", fence)
    ledger.begin("once", 1)
    ledger.end("once", 1)
    ledger.begin("other", 1)

    assert (ledger.started("job"), ledger.finished("job")) == (2, 2)
    assert (ledger.started("other"), ledger.finished("other")) == (1, 0)
    assert ledger.doubles() == {"job": (1, 2)}
    assert ledger.overlaps() == []


def test_an_overlap_lasts_from_the_second_begin_to_the_first_end(ledger: Ledger) -> None:
    ledger.begin("job", 1)
    ledger.begin("other", 1)
    ledger.begin("job", 2)
    ledger.end("job", 1)
    ledger.end("job", 2)

    [overlap] = ledger.overlaps()
    assert (overlap.older.fence, overlap.newer.fence) == (1, 2)
    assert (overlap.begin, overlap.end) == (overlap.newer.begin, overlap.older.end)


def test_a_run_lasts_for_ever_unless_its_process_is_known_to_be_dead(ledger: Ledger, tmp_path: Path) -> None:
    with worker(STUCK.format(fence=1), ledger, tmp_path / "1.log") as first:
        first.until_line("begun")
        first.kill()
    with worker(STUCK.format(fence=2), ledger, tmp_path / "2.log") as second:
        second.until_line("begun")
        [overlap] = ledger.overlaps()
        assert (overlap.older.pid, overlap.newer.pid) == (first.pid, second.pid)
        assert overlap.end is None

        second.kill()
        ledger.died(second.pid)
        [overlap] = ledger.overlaps()
        assert overlap.end == overlap.newer.end is not None


def test_a_death_ends_the_run_before_the_next_begins(ledger: Ledger, tmp_path: Path) -> None:
    ledger.begin("other", 1)
    with worker(STUCK.format(fence=1), ledger, tmp_path / "1.log") as first:
        first.until_line("begun")
        first.kill()
        ledger.died(first.pid)
    ledger.begin("job", 2)

    [other, old, new] = ledger.runs()
    assert old.end is not None
    assert (old.end < new.begin, new.end, other.end) == (True, None, None)
    assert ledger.overlaps() == []


def test_a_torn_record_is_left_out_and_harms_no_other(ledger: Ledger) -> None:
    ledger.begin("job", 1)
    whole = ledger.path.read_bytes()
    for length in range(2, len(whole) - 1):
        ledger.path.write_bytes(whole + whole[:length])
        assert (len(ledger.read()), ledger.torn()) == (1, 1)

        ledger.end("job", 1)
        assert ([record.kind for record in ledger.read()], ledger.torn()) == (["begin", "end"], 1)


def test_many_processes_write_at_once(ledger: Ledger) -> None:
    with ExitStack() as stack:
        workers = [
            stack.enter_context(worker(BUSY, ledger, ledger.path.with_suffix(".log"))) for _ in range(4)
        ]
        assert [child.wait() for child in workers] == [0, 0, 0, 0]

    numbers = {
        child.pid: [r.facts["number"] for r in ledger.read() if r.pid == child.pid] for child in workers
    }
    assert numbers == {child.pid: list(range(250)) for child in workers}
    assert ledger.torn() == 0
