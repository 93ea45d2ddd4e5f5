"""Every example of the README is run as it is printed, in one folder and in order, and prints what is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import unstuck_memory
from unstuck_memory.mcp.tools import tools

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
SLOW = "the provider gave no vector for the query in time"  # as on a machine that stood still
OURS = re.compile(r"(?:UNSTUCK|NEO4J|EMBED|OPENAI|XDG)_")


def test_the_examples_run_as_printed(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    environ["XDG_DATA_HOME"] = str(tmp_path / "data")
    for kind, text in BLOCK.findall(README.read_text()):
        if kind == "python":
            name = NAMED.match(text)
            assert name is not None, f"a console block runs it by its name:\n{text}"
            (tmp_path / name[1]).write_text(text)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", text, re.MULTILINE):
            done = _run(command, tmp_path, environ)
            while SLOW in done.stdout:
                done = _run(command, tmp_path, environ)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout.replace(f"{tmp_path}/data", "/home/ann/.local/share")
            assert not shown or TIME.sub("a time", printed) == TIME.sub("a time", shown)


def _run(command: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environ, capture_output=True, text=True, timeout=90, check=False
    )  # fmt: skip


def test_the_table_of_methods_names_all_of_them() -> None:
    text = README.read_text()
    methods = {name for name in vars(unstuck_memory.Memory) if not name.startswith("_")}
    assert [name for name in sorted(methods) if not re.search(rf"`{name}\b", text)] == []


def test_the_table_of_tools_names_all_of_them_and_those_of_the_core_in_bold() -> None:
    table = README.read_text().partition("| tool |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+_\w+)`", table.replace("`entity_name`", ""))) == sorted(tools(debug=True))
    assert sorted(re.findall(r"\*\*`(\w+)`\*\*", table)) == sorted(tools("core"))


@pytest.mark.parametrize("name", unstuck_memory.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(unstuck_memory, name).__module__.startswith("unstuck_memory.")
    assert name in dir(unstuck_memory)
