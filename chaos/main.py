"""One run: work, break things, heal, drain, check. Prints what went wrong on purpose and what held."""

import argparse
import asyncio
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.processes import Child

from chaos.crowd import Crowd
from chaos.faults import Faults
from chaos.history import SHOWN, Check, History, all_jobs, counters
from chaos.place import STORES, place
from unstuck import Jobs, StoreError, open_store
from unstuck.operations.verify import broken_rules

STOP = 90.0  # seconds for a supervisor to end when it is asked to
NEVER = -99  # the exit code of one that did not
DRAIN = 180.0  # seconds for everything to end once all is well again
SLOW = 2.0  # seconds within which README has a job of a killed worker run again
TRACE = re.compile(r"Traceback \(most recent|never retrieved|Segmentation fault|Fatal Python")


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos/run.py", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs enqueued a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="an empty folder for logs, ledger and verdict")
    chosen = parser.parse_args()
    if chosen.keep and chosen.keep.exists() and any(chosen.keep.iterdir()):
        parser.error(
            f"--keep {chosen.keep} is not empty: the records of two runs would mix; name a new folder"
        )
    logging.getLogger("neo4j").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        folder = (chosen.keep or Path(made)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        checks = asyncio.run(attack(chosen, folder))
    sys.exit(1 if any(check.broken for check in checks) else 0)


async def attack(chosen: argparse.Namespace, folder: Path) -> list[Check]:
    chance = random.Random(chosen.seed)
    async with place(chosen.store, folder) as where, open_store(where.url) as store:
        await store.migrate()
        jobs = Jobs(store)
        with Crowd(where, folder, chosen.rate, chance) as crowd:
            faults = Faults(where, crowd, jobs, chance)
            await asyncio.sleep(5)
            await break_things(faults, chosen.minutes * 60)
            for producer in crowd.producers.values():
                producer.close()
            left = await drain(crowd, jobs)
            ended = await asyncio.to_thread(stop, crowd)
        found = await all_jobs(jobs)
        history = History(crowd.ledger, found, faults.harms, faults.cancelled)
        verified = [str(problem) for problem in await broken_rules(store)]
        checks = [
            *history.checks(),
            await counters(store, found),
            Check("verify finds nothing", len(found), verified),
            Check(
                "supervisors end with 0 when asked", len(ended), [str(code) for code in ended if code != 0]
            ),
            Check("no supervisor ended by itself", len(crowd.supervisors), [str(of) for of in crowd.exits]),
            Check(
                "no traceback in the logs",
                1,
                [line[:300] for line in crowd.raw_lines() if TRACE.search(line)],
            ),
        ]
        report(chosen, faults, history, checks, left, folder)
        return checks


async def break_things(faults: Faults, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(faults.chance.uniform(0.5, 5.0))
        faults.crowd.keep()
        name = await faults.one()
        print(f"{end - time.monotonic():6.0f} s left  {name}", flush=True)


async def drain(crowd: Crowd, jobs: Jobs) -> int:
    """Wait until nothing is left to do; answers what is."""
    end = time.monotonic() + DRAIN
    left = -1
    while left and time.monotonic() < end:
        await asyncio.sleep(1)
        crowd.keep_supervisors()
        try:
            counts = await jobs.get_queue_status()
        except StoreError:
            continue
        left = counts["pending"] + counts["processing"]
    return left


def stop(crowd: Crowd) -> list[int]:
    for supervisor in crowd.supervisors.values():
        supervisor.terminate()
    return [_ended(supervisor) for supervisor in crowd.supervisors.values()]


def _ended(supervisor: Child) -> int:
    try:
        return supervisor.wait(STOP)
    except AssertionError:
        return NEVER


def report(
    chosen: argparse.Namespace,
    faults: Faults,
    history: History,
    checks: list[Check],
    left: int,
    folder: Path,
) -> None:
    print(f"\n{chosen.store}, {chosen.minutes:g} minutes, seed {chosen.seed}")
    counts = Counter(span.name for span in faults.spans)
    for name, count in counts.most_common():
        print(f"  {count:>5}  {name}")
    recoveries = history.recoveries(faults.spans)
    print(f"{len(history.acknowledged)} acknowledged, {len(history.runs)} starts, {left} left after draining")
    print(f"recovery of jobs of killed workers: {spread([one.seconds for one in recoveries])}")
    alone = [one.seconds for one in recoveries if not one.beside]
    print(f"where nothing else went wrong:      {spread(alone)}")
    for one in recoveries:
        if one.seconds > SLOW and not one.beside:
            print(f"          {one.job} after {one.seconds:.2f} s")
    for check in checks:
        print(f"  {'ok  ' if not check.broken else 'FAIL'}  {check.rule} ({check.of})")
        for line in check.broken[:SHOWN]:
            print(f"          {line}")
        if len(check.broken) > SHOWN:
            print(f"          … {len(check.broken)} in all")
    verdict = {
        "store": chosen.store,
        "minutes": chosen.minutes,
        "seed": chosen.seed,
        "faults": counts,
        "spans": faults.spans,
        "acknowledged": len(history.acknowledged),
        "starts": len(history.runs),
        "recoveries": recoveries,
        "checks": {check.rule: check.broken for check in checks},
    }
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1))


def spread(seconds: list[float]) -> str:
    took = sorted(seconds)
    if not took:
        return "none"
    middle, late = took[len(took) // 2], took[int(len(took) * 0.99)]
    return f"{len(took)} jobs, p50 {middle:.2f} s, p99 {late:.2f} s, worst {took[-1]:.2f} s"
