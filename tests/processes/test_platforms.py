"""Other systems than Linux, as far as they can be had here: what only Linux has is taken away, or another name is given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import COMMAND

pytestmark = pytest.mark.slow

WITHOUT_LINUX = """
import asyncio, multiprocessing.spawn, os, pathlib, select, selectors, subprocess, sys, zoneinfo

del os.pipe2, select.epoll, selectors.EpollSelector
selectors.DefaultSelector = selectors.PollSelector
sys.platform = "darwin"

def without_proc(name, otherwise):
    real = getattr(pathlib.Path, name)
    def method(self, *args, **named):
        return otherwise(self) if str(self).startswith("/proc") else real(self, *args, **named)
    setattr(pathlib.Path, name, method)

def missing(path):
    raise FileNotFoundError(2, "there is none", str(path))

for name in ("read_text", "read_bytes", "iterdir", "readlink", "stat"):
    without_proc(name, missing)
without_proc("glob", lambda path: iter(()))
"""
WINDOWS = "import asyncio, click, sys, zoneinfo\nsys.platform = 'win32'\n"
APP = """
import os
from unstuck import Unstuck, current_job
app = Unstuck("sqlite:///jobs.db")

@app.task
async def on_loop() -> None: ...

@app.task
def in_thread() -> None: ...

@app.task(isolate=True)
def alone() -> None: ...

@app.task
def dies() -> None:
    if current_job().attempt == 1:
        os._exit(9)
"""
REFUSED = (
    "unstuck does not run on Windows, which has no fork and no signals: use WSL 2 or a container with Linux"
)


def run(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNSTUCK_")}
    environment["PYTHONPATH"] = str(folder)
    return subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_jobs_of_all_kinds_run_without_what_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LINUX)
    (tmp_path / "mac.py").write_text(APP)
    for task in ("on_loop", "in_thread", "alone", "dies"):
        assert run(tmp_path, COMMAND, "enqueue", "--app", "mac:app", task, "{}").returncode == 0

    worked = run(tmp_path, COMMAND, "worker", "mac:app", "--until-idle")
    store = ("--store", "sqlite:///jobs.db")

    assert worked.returncode == 0, worked.stderr
    assert "died: exit code 9" in worked.stderr
    assert run(tmp_path, COMMAND, "jobs", *store).stdout.count("completed") == 4
    assert run(tmp_path, COMMAND, "doctor", *store).returncode == 0


@pytest.mark.parametrize("verb", ["worker", "enqueue", "status", "--help"])
def test_on_windows_the_command_refuses_in_one_line(tmp_path: Path, verb: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WINDOWS)

    refused = run(tmp_path, COMMAND, verb)

    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"unstuck: {REFUSED}\n")


def test_on_windows_a_program_fails_where_it_imports_a_name(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WINDOWS)

    refused = run(tmp_path, sys.executable, "-c", "from unstuck import Unstuck")

    assert refused.stderr.splitlines()[-1] == f"ImportError: {REFUSED}"
