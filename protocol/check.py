"""Check the model of the lease protocol (lease.pml), and that it catches every known mistake.

    python protocol/check.py              all runs as a table; fails if a promise breaks or a mutant lives
    python protocol/check.py --deep       the protocol with larger bounds: minutes and gigabytes
    python protocol/check.py --trail 14   one run of it, and its shortest counterexample step by step

Needs spin and gcc. Without them it says so and passes, except where CI=true.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

MODEL = Path(__file__).with_name("lease.pml")
TIMEOUT = 600  # seconds; the slowest run takes about five, --deep a minute
OWN, LIVE, DEEP = {"OWN_BUDGET": 1}, {"LIVE": 1, "GRANTS": 3}, {"GRANTS": 6, "SLIPS": 2}


@dataclass(frozen=True)
class Run:
    name: str
    what: str
    defines: dict[str, int] = field(default_factory=dict)

    @property
    def mutant(self) -> bool:
        return "MUT" in self.defines

    @property
    def flags(self) -> list[str]:
        return [f"-D{name}={value}" for name, value in self.defines.items()]


@dataclass(frozen=True)
class Verdict:
    good: bool
    words: str
    states: int
    seconds: float


def mutant(number: int, what: str, defines: dict[str, int] | None = None, suffix: str = "") -> Run:
    return Run(f"{number}{suffix}", what, {"MUT": number, **(defines or {})})


# The long ones first, so that two processes end at about the same time.
RUNS = (
    Run("own", "protocol, max_crashes set", OWN),
    Run("one", "protocol, max_crashes unset"),
    Run("live-own", "gets unstuck, max_crashes set", OWN | LIVE),
    Run("live-one", "gets unstuck, max_crashes unset", LIVE),
    Run("outside", "protocol and a fenced resource", {"OUTSIDE": 1, "GRANTS": 3}),
    mutant(1, "settle without any check"),
    mutant(2, "settle checks the status only"),
    mutant(3, "settle checks the owner's name"),
    mutant(4, "heartbeat without the fence"),
    mutant(5, "handler trusts its clock, resource unfenced"),
    mutant(6, "reaper lists, then updates"),
    mutant(7, "reaper never gives up"),
    mutant(7, "reaper never gives up, max_crashes set", OWN, "-own"),
    mutant(8, "reaper forgets exhausted jobs"),
    mutant(8, "reaper forgets exhausted jobs, liveness", LIVE, "-live"),
    mutant(9, "reaper with a skewed clock"),
    mutant(10, "lease reads, then writes"),
    mutant(11, "crash counted in reclaim"),
    mutant(12, "release keeps the attempt"),
    mutant(13, "settle does not remember settled_fence"),
    mutant(14, "cancel does not raise the fence"),
    mutant(15, "crash forgotten when a reaper died on it", OWN),
    mutant(16, "reaper writes its event afterwards"),
    mutant(17, "settle takes a late worker for a crash"),
)

# How Spin words a violation, and which promise that is. The first that fits counts.
PROMISES = (
    ("acceptance cycle", "the job leaves processing"),
    ("granted", "the fence grows with every grant"),
    ("seen", "no smaller fence after a larger one outside"),
    ("gone", "a running lease is not reclaimed"),
    ("by_holder", "settle's answer is true"),
    ("cancelled", "nothing completes after a cancel"),
    ("completions", "one completion"),
    ("journal", "journal = state"),
    ("spent", "attempts = leases spent"),
    ("crashes<=attempts", "crashes <= attempts"),
    ("attempts", "the budget"),
    ("fence!=ended", "a lease ends once"),
    ("fence==token", "only the current fence writes"),
    ("status!=", "nobody is stuck at rest"),
)


def verify(run: Run, folder: str, *options: str) -> str:
    """Build the verifier for one run in the folder and return what it reports."""

    def call(*command: str) -> str:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    build, search = (("-DNFAIR=3",), ("-a", "-f")) if "LIVE" in run.defines else (("-DSAFETY",), ())
    shutil.copy(MODEL, folder)
    call("spin", *run.flags, "-a", MODEL.name)
    call("gcc", *build, *options, "-o", "pan", "pan.c")
    return call("./pan", "-m100000", "-w22", *search)


def judge(run: Run, report: str, seconds: float) -> Verdict:
    errors = re.search(r"errors: (\d+)", report)
    stored = re.search(r"(\d+) states, stored", report)
    states = int(stored[1]) if stored else 0
    violation = next((line for line in report.splitlines() if line.startswith("pan:1:")), "?")
    promise = next((name for sign, name in PROMISES if sign in violation), "")
    if errors is None or stored is None:
        return Verdict(False, "no verdict: " + report.strip()[-200:], states, seconds)
    if int(errors[1]):
        caught = run.mutant and promise != ""  # an error that is no broken promise proves nothing
        return Verdict(
            caught, ("caught: " if caught else "VIOLATED: ") + (promise or violation), states, seconds
        )
    # Only a search that saw every state may say that there is no error.
    cut = ("max search depth too small", "Search not completed", "truncated", "out of memory")
    if "Full statespace search" not in report or any(sign in report for sign in cut):
        return Verdict(False, "TRUNCATED: not every state was searched", states, seconds)
    return Verdict(not run.mutant, "SURVIVED" if run.mutant else "holds", states, seconds)


def check(run: Run) -> Verdict:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            # A mutant is found in a moment, so its verifier is not worth optimising.
            report = verify(run, folder, "-O0" if run.mutant else "-O1")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return Verdict(False, f"no verdict: {error}", 0, time.monotonic() - start)
    return judge(run, report, time.monotonic() - start)


def table(runs: Sequence[Run], jobs: int) -> int:
    start = time.monotonic()
    print(f"{'run':<9} {'what':<44} {'states':>8} {'s':>5}  verdict")
    bad = 0
    with ThreadPoolExecutor(jobs) as pool:
        for run, verdict in zip(runs, pool.map(check, runs), strict=True):
            bad += not verdict.good
            numbers = f"{verdict.states:>8} {verdict.seconds:>5.1f}"
            print(f"{run.name:<9} {run.what:<44} {numbers}  {verdict.words}", flush=True)
    print(f"{len(runs)} runs, {bad} not as they should be, {time.monotonic() - start:.0f} s")
    return 1 if bad else 0


def trail(name: str) -> int:
    run = next((run for run in RUNS if run.name == name), None)
    if run is None:
        print(f"no run {name!r}; there are: {' '.join(run.name for run in RUNS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = verify(run, folder, "-O1")
        found = Path(folder, f"{MODEL.name}.trail").exists()
        if found and "LIVE" not in run.defines:  # breadth first finds a shortest one, but never a cycle
            report = verify(run, folder, "-O1", "-DBFS")
        print(f"{run.what}: {judge(run, report, 0).words}", flush=True)
        if found:
            replay = ["spin", *run.flags, "-T", "-t", "-g", MODEL.name]
            story = subprocess.run(replay, cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout
            print(re.sub(r"(?m)^(Never claim|.*\tproc ).*\n", "", story))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the model of the lease protocol and its mutants.")
    parser.add_argument("--deep", action="store_true", help="the protocol alone, with larger bounds")
    parser.add_argument("--trail", metavar="RUN", help="show the shortest counterexample of one run")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    options = parser.parse_args()
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(f"Protocol not checked, {' and '.join(missing)} missing: apt-get install {' '.join(missing)}")
        return 1 if os.environ.get("CI") == "true" else 0
    if options.trail:
        return trail(options.trail)
    deep = [replace(run, defines=run.defines | DEEP) for run in RUNS if not run.mutant]
    return table(deep if options.deep else RUNS, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
