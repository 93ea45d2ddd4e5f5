"""docs/guards.md names what exists: every statement file, and tests that are still there."""

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from support.folders import ROOT

PAGE = (ROOT / "docs" / "guards.md").read_text()
STORES = ROOT / "src" / "unstuck" / "stores"
STATEMENTS = (".sql", ".lua", ".cypher")
PARTS = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]  # one a store
FOLDER = re.compile(r"^`(src/unstuck/stores/\S+)`", re.MULTILINE)
ROW = re.compile(r"^\| (\S+\.\w+) \| (.*) \|$", re.MULTILINE)


def test_every_statement_file_is_named_and_every_file_that_is_named_exists() -> None:
    named = set()
    for part in PARTS:
        [folder] = FOLDER.findall(part)
        named |= {ROOT / folder / file for file, _ in ROW.findall(part)}
    # A migration has nothing that could be left out: what it makes is there or the store is not.
    there = {
        file for file in STORES.rglob("*") if file.suffix in STATEMENTS and file.parent.name != "migrations"
    }
    assert len(there) > 200
    assert shown(there - named) == []
    assert shown(file for file in named if not file.is_file()) == []


def test_every_row_names_tests_that_exist() -> None:
    tests = functions(ROOT / "tests") | functions(ROOT / "src" / "unstuck" / "testing" / "conformance")
    rows = [(file, re.findall(r"`(test_\w+)`", rest)) for part in PARTS for file, rest in ROW.findall(part)]
    assert [file for file, named in rows if not named] == []
    assert sorted({name for _, named in rows for name in named} - tests) == []


def test_the_mutants_that_were_counted_are_of_the_modules_that_are_changed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    counted = [file for file, _ in ROW.findall(PAGE.partition("\n### ")[0])]
    assert sorted(f"src/unstuck/{file}" for file in counted) == sorted(settings["only_mutate"])
    named = [*settings["only_mutate"], *settings["pytest_add_cli_args_test_selection"]]
    assert [file for file in named if not (ROOT / file).is_file()] == []


def functions(folder: Path) -> set[str]:
    return {
        node.name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def shown(files: Iterable[Path]) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in files)
