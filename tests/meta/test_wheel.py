"""The built package works where nothing else of the project is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.folders import ROOT

SOURCE = ROOT / "src" / "unstuck"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_empty_environment_with_the_wheel_runs_a_job(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = tmp_path.glob("unstuck-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("sql", "lua", "cypher"):
        statements = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob(f"*.{kind}")}
        assert statements, f"the source has no .{kind} file"
        assert not statements - packed
    assert "unstuck/py.typed" in packed

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    constraint = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *constraint, wheel], check=True)
    (tmp_path / "tasks.py").write_text(
        "from unstuck import Unstuck\n"
        "app = Unstuck('sqlite:///jobs.db')\n"
        "@app.task\n"
        "def double(number: int) -> int:\n"
        "    return 2 * number\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        ["unstuck", "enqueue", "double", '{"number": 21}', "--store", "sqlite:///jobs.db"],
        ["unstuck", "worker", "tasks:app", "--burst"],
        ["unstuck", "jobs", "--status", "completed", "--json", "--store", "sqlite:///jobs.db"],
    ):
        done = subprocess.run(
            [python.parent / command[0], *command[1:]],
            cwd=tmp_path,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
    assert '"result": 42' in done.stdout
