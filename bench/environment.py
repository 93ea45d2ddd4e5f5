"""Gives every peer an environment of its own, and says what everything ran on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.contestant import OUT, Contestant

# The releases that were measured, or newer ones. pip on an old Python quietly takes an older release.
WANTED = {"litequeue": "litequeue>=0.14", "huey": "huey>=3.2"}
_VERSIONS = """
import platform, sqlite3, sys
from importlib.metadata import version
print(version(sys.argv[1]), platform.python_version(), sqlite3.sqlite_version)
"""


def install(peer: Contestant) -> None:
    """On the running Python if the newest release of the peer takes it, else on a newer one."""
    folder = OUT / "peers" / peer.name
    peer.python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        attempts = [(python, WANTED[peer.name]) for python in _pythons()] + [(sys.executable, peer.name)]
        for python, package in attempts:
            print(f"installing {package} on {python}", file=sys.stderr)
            subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [
                str(peer.python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                package,
            ]
            if subprocess.run(pip, check=False, stdout=sys.stderr, stderr=subprocess.DEVNULL).returncode == 0:
                break
        else:
            sys.exit(f"{peer.name} cannot be installed: is a package index in reach?")
        (folder / "installed").touch()
    peer.version = version(peer)


def version(contestant: Contestant) -> str:
    """For example ``0.14 (Python 3.12.1, SQLite 3.45.1)``."""
    command = [str(contestant.python), "-c", _VERSIONS, contestant.name]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    release, python, sqlite = answer.split()
    if contestant.name == "unstuck":
        import apsw

        sqlite = apsw.sqlite_lib_version()
    return f"{release} (Python {python}, SQLite {sqlite})"


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
