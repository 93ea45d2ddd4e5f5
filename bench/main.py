"""The run: rounds in which contestants take turns, then a table and a file of all samples."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime

from bench.contestant import OUT
from bench.neo4j_rounds import Neo4jRounds
from bench.plan import SMALL, Plan
from bench.postgres_rounds import PostgresRounds
from bench.redis_rounds import RedisRounds
from bench.report import table
from bench.rounds import Rounds
from bench.sqlite_rounds import SQLiteRounds

STORES: dict[str, type[SQLiteRounds | PostgresRounds | RedisRounds | Neo4jRounds]] = {
    "sqlite": SQLiteRounds,
    "postgres": PostgresRounds,
    "redis": RedisRounds,
    "neo4j": Neo4jRounds,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__)
    parser.add_argument(
        "--store",
        choices=STORES,
        action="append",
        help="sqlite, postgres, redis or neo4j (default: one after the other)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100, help="of our worker (default 100)")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds to wait for a calm machine before a measurement"
    )
    parser.add_argument("--only", metavar="STEP,…", help="take these steps alone, such as bulk,drain")
    parser.add_argument("--without", metavar="NAME,…", help="leave contestants out")
    parser.add_argument("--quick", action="store_true", help="one small round: does it all still run?")
    options = parser.parse_args()
    plan = Plan(options.rounds, options.concurrency, options.patience)
    if options.quick:
        plan = replace(plan, rounds=1, patience=0.0, tries=1, **SMALL)
    only, without = _names(options.only), _names(options.without)
    runs = [STORES[store](plan, only, without) for store in dict.fromkeys(options.store or STORES)]
    steps = dict.fromkeys(step for run in runs for step in run.steps())
    if unknown := set(only) - steps.keys():
        parser.error(f"there is no step {min(unknown)}: there are {', '.join(steps)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that all is cleaned up
    for run in runs:
        if any(run.wants(step) for step in run.steps()):
            _take(run, quick=options.quick)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _take(run: Rounds, *, quick: bool) -> None:
    began = time.monotonic()
    try:
        run.prepare()
        for number in range(1, run.plan.rounds + 1):
            run.round(number)
    finally:
        run.clean()
    facts = {
        "store": run.store,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    facts |= run.facts | {one.name: one.version for one in run.contestants}
    for name, fact in (facts | {"plan": run.plan}).items():
        print(f"{name}: {fact}")
    print("\n" + table(run.samples, run.plan, run.store) + "\n")
    latest = {
        "facts": facts,
        "plan": asdict(run.plan),
        "samples": [asdict(sample) for sample in run.samples],
    }
    (OUT / f"{'quick' if quick else 'latest'}-{run.store}.json").write_text(json.dumps(latest, indent=1))
