"""BullMQ's own package for Python, newest, in a folder of its own: it asks for exact versions of what others use, too."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.folders import ROOT, TESTS
from support.servers import alone, missing

PLACE = ROOT / ".make" / f"bullmq-python-{sys.version_info[0]}.{sys.version_info[1]}"


def produce(port: int, prefix: str, queue: str, single: list[Any], bulk: list[Any]) -> list[str]:
    """Have it add jobs, the first ones one by one; answers their ids."""
    argv = [sys.executable, str(TESTS / "python" / "produce.py"), str(port), prefix, queue]
    done = subprocess.run(
        [*argv, json.dumps(single), json.dumps(bulk)],
        env=os.environ | {"PYTHONPATH": str(installed())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ids: list[str] = json.loads(done.stdout)
    return ids


@functools.cache
def installed() -> Path:
    with alone(PLACE):
        _install()
    return PLACE


def _install() -> None:
    if not (PLACE / "complete").exists():
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"]
        argv = [sys.executable, *install, str(PLACE), "bullmq"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            missing(
                "BullMQ for Python",
                f"pip install --target {PLACE.name} bullmq ({done.stderr.strip()[-200:]})",
            )
        (PLACE / "complete").touch()
