"""Every example of README and docs is run as it is printed.

A block of Python or of Node whose first line is a file name is saved under it; the others are run as scripts, in the
same folder and in order. In console blocks the lines behind ``$`` are run. Where a page speaks of ``DATABASE_URL``,
that is a database of its own; ``REDIS_URL`` is a server on which nobody else has its queues.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT
from support.node import NEWEST, installed
from support.postgres import Postgres
from support.redis import Redis

from unstuck.protocol.store import Store

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|js|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
NAMED = re.compile(r"(?:#|//) (\w+\.(?:py|mjs))\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_as_printed(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "DATABASE_URL" in page.read_text():
        server: Postgres = request.getfixturevalue("pg18")
        monkeypatch.setenv("DATABASE_URL", url := server.create_database())
        request.addfinalizer(lambda: server.drop_database(url))
    if "REDIS_URL" in page.read_text():
        redis: Redis = request.getfixturevalue("redis7")
        monkeypatch.setenv("REDIS_URL", redis.url())
        (tmp_path / "node_modules").symlink_to(installed(NEWEST) / "node_modules")
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "console":
            for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                run(["bash", "-c", command], tmp_path)
        elif name := NAMED.match(text):
            (tmp_path / name[1]).write_text(text)
            if kind == "python":
                compile(text, name[1], "exec")
        else:
            run([sys.executable, "-c", text], tmp_path)


def run(argv: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        argv,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{argv[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_first_example_prints_what_it_promises(tmp_path: Path) -> None:
    [first, *_] = BLOCK.findall((ROOT / "README.md").read_text())

    assert run([sys.executable, "-c", first[1]], tmp_path) == "Hello, Ann!\n"


def test_every_row_of_the_table_about_bullmq_has_a_test_and_every_such_test_a_row() -> None:
    [table] = re.findall(
        r"^\| feature \| here \| how \|\n\|.*\n((?:\|.*\n)+)",
        (ROOT / "docs/node.md").read_text(),
        re.MULTILINE,
    )
    rows = ROW.findall(table)
    assert len(rows) == len(table.splitlines())
    assert {here for _, here, _ in rows} <= {"same", "different", "not served"}

    proven = {
        row for file in (ROOT / "tests").rglob("test_*.py") for row in marked(ast.parse(file.read_text()))
    }
    assert proven == {feature for feature, _, _ in rows}


def marked(file: ast.Module) -> set[str]:
    """The rows that the tests of a file prove."""
    tests = [node for node in ast.walk(file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marks = [mark for test in tests for mark in test.decorator_list if isinstance(mark, ast.Call)]
    return {
        ast.literal_eval(row)
        for mark in marks
        if ast.unparse(mark.func) == "pytest.mark.node"
        for row in mark.args
    }


def test_the_page_about_stores_lists_each_operation_of_the_protocol_in_its_role() -> None:
    page = (ROOT / "docs/stores.md").read_text()
    roles = {role.__name__: methods for role in Store.__bases__ if (methods := operations(role))}
    listed = {
        role: re.findall(r"`(\w+)`", methods)
        for role, methods in re.findall(r"^\| `([A-Z]\w+)` \|[^|]*\|([^|]*)\|", page, re.MULTILINE)
    }

    assert listed == roles
    everything = [name for methods in roles.values() for name in methods]
    assert len(everything) <= 25
    assert f"{len(everything)}, in {'six' if len(roles) == 6 else len(roles)} roles" in page


def operations(role: type) -> list[str]:
    return [name for name, what in vars(role).items() if callable(what) and not name.startswith("_")]


def test_the_architecture_names_every_module_and_no_file_that_is_gone() -> None:
    """Modules of foreign tables are in the README of their folder; of some folders the name is enough."""
    source = ROOT / "src/unstuck"
    page = (ROOT / "docs/architecture.md").read_text()
    foreign = (source / "stores/postgres/foreign/README.md").read_text()

    for module in sorted(source.rglob("*.py")):
        whole = {"conformance", "harnesses", "demo", "django"} & {*module.parts}
        if module.name == "__init__.py" or whole:
            assert not whole or any(f"`{folder}/`" in page for folder in whole), f"{whole} is not named"
            continue
        text = foreign if module.parent.name == "foreign" else page
        assert re.search(rf"\b{module.name}\b", text), f"{module.relative_to(source)} is not named"
    for named in set(re.findall(r"`([\w/]+\.(?:py|sql|lua|cypher))`", page)):
        assert (ROOT / named).exists() or any(source.rglob(named)), f"{named} is gone"
    for folder in (one for one in source.iterdir() if one.is_dir() and one.name != "__pycache__"):
        assert f"| `{folder.name}/` |" in page, f"{folder.name}/ is not in the table of packages"
