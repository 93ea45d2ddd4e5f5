"""The built packages work where nothing else of the project is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.folders import ROOT

MEMORY = ROOT / "apps" / "memory"


def built(project: Path, folder: Path) -> Path:
    """The wheel of a project, which has all its statements and its types."""
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(project),
    ]
    subprocess.run(build, check=True, capture_output=True)
    name = "unstuck" if project == ROOT else "unstuck_memory"
    [wheel] = folder.glob(f"{name}-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = project / "src"
    statements = {
        path.relative_to(source).as_posix()
        for kind in ("sql", "lua", "cypher")
        for path in source.rglob(f"*.{kind}")
    }
    assert len(statements) > 100
    assert not statements - packed
    assert f"{name}/py.typed" in packed
    return wheel


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_empty_environment_with_the_wheel_runs_a_job(tmp_path: Path) -> None:
    wheel = built(ROOT, tmp_path)
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


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_empty_environment_with_both_wheels_has_a_memory(tmp_path: Path) -> None:
    wheels = [built(ROOT, tmp_path), built(MEMORY, tmp_path)]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    commands = tmp_path / "empty" / "bin"
    constraint = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([commands / "python", "-m", "pip", "install", "--quiet", *constraint, *wheels], check=True)
    line = '{"type":"entity","name":"Ann","entityType":"person","observations":["plays the cello"]}'
    (tmp_path / "team.jsonl").write_text(f"{line}\n")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        ["unstuck-memory", "init"],
        ["unstuck-memory", "import", "team.jsonl"],
        ["unstuck", "worker", "unstuck_memory.worker:app", "--burst"],
        ["unstuck-memory", "status"],
    ):
        done = subprocess.run(
            [commands / command[0], *command[1:]],
            cwd=tmp_path,
            env=env | {"XDG_DATA_HOME": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
    assert "1 of 1 entities have embeddings (100%)" in done.stdout
