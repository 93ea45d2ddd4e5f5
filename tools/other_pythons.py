"""Runs the quick tests, on one server of each kind, on a second Python version, in an environment of its own.

Looks for the interpreter where people have it: on the PATH, with pyenv, with uv. Without one it says so and
goes on, unless CI=true: then it fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = "3.13" if sys.version_info[:2] != (3, 13) else "3.11"
# What stores do besides their suite does not depend on the Python: it was tested on the first one. Neo4j's takes longest.
# What a connection that was reset raises does: it comes from the event loop.
STORES_OWN = (
    "tests/stores/foreign_tables/*",
    "tests/stores/postgres/test_[!c]*",
    "tests/stores/redis/test_[!c]*",
    "tests/stores/neo4j/test_[!n]*",
)
HOME = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def interpreter() -> str | None:
    candidates = [shutil.which(f"python{VERSION}")]
    candidates += sorted(map(str, HOME.glob(f"versions/{VERSION}*/bin/python{VERSION}")), reverse=True)
    candidates += sorted(
        map(str, Path.home().glob(f".local/share/uv/python/cpython-{VERSION}*/bin/python{VERSION}"))
    )
    return next((found for found in candidates if found and _works(found)), None)


def _works(python: str) -> bool:
    # A pyenv shim is on the PATH even for versions that are not selected; running it tells.
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def main() -> int:
    python = interpreter()
    if python is None:
        print(
            f"Python {VERSION} was not found, so only {sys.version.split()[0]} is tested: install python{VERSION}"
        )
        return 1 if os.environ.get("CI") == "true" else 0
    folder = ROOT / f".venv-{VERSION}"
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    group = subprocess.run(
        [sys.executable, ROOT / "tools" / "dev_group.py"], check=True, capture_output=True, text=True
    ).stdout.split()
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--editable",
        ".[testing]",
        *group,
    ]
    subprocess.run([own, *install, "--constraint", "constraints.txt"], cwd=ROOT, check=True)
    print(
        f"once more on Python {VERSION}: the engine, and the suite of each store but Neo4j's, of which it is what networks do",
        flush=True,
    )
    chosen = [
        "tests",
        "-m",
        "not slow and not further and not long",
        *(f"--ignore-glob={files}" for files in STORES_OWN),
    ]
    return subprocess.run(
        [own, "-m", "pytest", "-q", *chosen, *sys.argv[1:]], cwd=ROOT, check=False
    ).returncode


sys.exit(main())
