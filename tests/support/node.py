"""Scripts for Node with BullMQ and its dashboard from npm, installed once and kept beside the virtual environment."""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.folders import ROOT, TESTS
from support.processes import Child
from support.servers import alone, missing

SCRIPTS = TESTS / "node"
PLACE = ROOT / ".make" / "node"
OLDEST, NEWEST = "6.0.0", "6"
BESIDE = ("ioredis", "@bull-board/api", "@bull-board/express", "express")


class Node:
    """``node("look", port, prefix, queue)`` runs a script to its end and answers what it printed as JSON."""

    def __init__(self, version: str = NEWEST) -> None:
        self._folder = installed(version)

    def __call__(self, script: str, *args: object) -> Any:
        done = subprocess.run(
            self._argv(script, args),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, log: Path, script: str, *args: object) -> Child:
        return Child(self._argv(script, args), log, cwd=self._folder)

    def _argv(self, script: str, args: tuple[object, ...]) -> list[str]:
        return ["node", f"{script}.mjs", *(arg if isinstance(arg, str) else json.dumps(arg) for arg in args)]


def must_be_there() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("Node", "apt-get install nodejs npm")


@functools.cache
def installed(version: str) -> Path:
    """A folder with BullMQ of that version and our scripts."""
    must_be_there()
    folder = PLACE / f"bullmq-{version}"
    with alone(PLACE):
        _install(folder, version)
    return folder


def _install(folder: Path, version: str) -> None:
    fetch(folder, "BullMQ", {"bullmq": version} | dict.fromkeys(BESIDE))
    for script in SCRIPTS.glob("*.mjs"):
        new = folder / f".{script.name}.{os.getpid()}"  # others may be running the old one
        shutil.copy(script, new)
        new.rename(folder / script.name)


def fetch(folder: Path, what: str, packages: Mapping[str, str | None]) -> None:
    """Install packages of npm, each in this version or the newest, unless they are there."""
    if all((folder / "node_modules" / name / "package.json").exists() for name in packages):
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    asked = [name if version is None else f"{name}@{version}" for name, version in packages.items()]
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *asked]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        missing(what, f"npm install {asked[0]} ({done.stderr.strip()[-200:]})")
