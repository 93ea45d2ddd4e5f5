"""What stands under a run of the tests: the servers that took part, and where the time went."""

import os
from collections import Counter, defaultdict
from typing import Any

import apsw
import pytest

from support import arcadedb
from support.neo4j import INSTALL, here
from support.servers import STARTED

STORES = {
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "foreign_tables": "foreign tables",
    "redis": "Redis",
    "neo4j": "Neo4j",
}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skipped test is a test that did not run: at home that is told, in CI it fails the run."""
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one reports
        session.config.workeroutput["servers"] = sorted(STARTED)
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("CI=true: a skipped test fails the run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    STARTED.update(getattr(node, "workeroutput", {}).get("servers", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests = Counter[str]()
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in (report for some in terminalreporter.stats.values() for report in some):
        if isinstance(report, pytest.TestReport):
            part = _part(report.nodeid)
            tests[part] += report.when == "call"
            seconds[part] += report.duration
    if not tests:
        return
    terminalreporter.section("servers and times")
    terminalreporter.write_line(", ".join([f"SQLite {apsw.sqlite_lib_version()}", *sorted(STARTED)]))
    for part, took in sorted(seconds.items(), key=lambda of: -of[1]):
        terminalreporter.write_line(f"{part:<16} {tests[part]:>5} tests {took / 60:>6.1f} min")
    if "Neo4j" in tests and not here():
        tested = "what of its store needs no locks was" if arcadedb.here() else "nothing of its store was"
        told = f"Neo4j itself was not run; {tested} tested on ArcadeDB. To run it: {INSTALL}"
        terminalreporter.write_line(told, yellow=True)


def _part(nodeid: str) -> str:
    """The folder of a test: its store, or its subject."""
    folder = nodeid.partition("::")[0].split("/")[1:-1]
    return STORES.get(folder[-1], folder[0]) if folder else "tests"
