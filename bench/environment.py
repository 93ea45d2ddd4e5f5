"""Gives every peer an environment of its own, and says what everything ran on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.contestant import OURS, Contestant
from bench.sqlite import OnFile

_VERSIONS = """
import platform, sqlite3, sys
from importlib.metadata import version
print(version(sys.argv[1]), platform.python_version(), sqlite3.sqlite_version)
"""


def install(peer: Contestant) -> bool:
    """Say whether it is there. Its ``packages`` are the releases that were measured, or newer ones."""
    stamp = peer.folder / "installed"
    if not stamp.exists():
        if not (_with_npm(peer) if peer.program[0] == "node" else _with_pip(peer)):
            return False
        stamp.touch()
    peer.version = version(peer)
    return True


def version(contestant: Contestant) -> str:
    """For example ``0.14 (Python 3.12.1, SQLite 3.45.1)``."""
    if contestant.program[0] == "node":
        package = json.loads(
            (contestant.folder / "node_modules" / contestant.name / "package.json").read_text()
        )
        node = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout
        return f"{package['version']} (Node {node.strip().removeprefix('v')})"
    command = [contestant.program[0], "-c", _VERSIONS, contestant.name]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    release, python, sqlite = answer.split()
    if not isinstance(contestant, OnFile):
        return f"{release} (Python {python})"
    if contestant.name == OURS:
        import apsw

        sqlite = apsw.sqlite_lib_version()
    return f"{release} (Python {python}, SQLite {sqlite})"


def _with_pip(peer: Contestant) -> bool:
    """On the running Python if the newest release takes it, else on a newer one, else what can be had."""
    attempts = [(python, peer.packages) for python in _pythons()] + [(sys.executable, _any(peer.packages))]
    for python, packages in attempts:
        print(f"installing {' '.join(packages)} on {python}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", "--clear", str(peer.folder)], check=True)
        pip = [peer.program[0], "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        if subprocess.run(pip, check=False, stdout=sys.stderr, stderr=subprocess.DEVNULL).returncode == 0:
            return True
    return False


def _with_npm(peer: Contestant) -> bool:
    if not (shutil.which("node") and shutil.which("npm")):
        return False
    print(f"installing {' '.join(peer.packages)} with npm", file=sys.stderr)
    peer.folder.mkdir(parents=True, exist_ok=True)
    npm = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(peer.folder),
        *peer.packages,
    ]
    return subprocess.run(npm, check=False, stdout=sys.stderr, stderr=subprocess.DEVNULL).returncode == 0


def _any(packages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(package.partition(">=")[0] for package in packages)


def _pythons() -> Iterator[str]:
    yield sys.executable
    for minor in (12, 13, 14):
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        for python in [f"python3.{minor}", *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))]:
            try:
                subprocess.run([python, "-c", "import venv"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            yield python
            break
