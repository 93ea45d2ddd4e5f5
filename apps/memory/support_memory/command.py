"""The command ``unstuck-memory``, run as people run it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).parent / "unstuck-memory"
NAMES = ("NEO4J", "OPENAI", "EMBED", "UNSTUCK", "XDG")
Answer = subprocess.CompletedProcess[str]


def run(home: Path, *args: str, **environ: str) -> Answer:
    """Run it with this folder as the one for data, and with no other settings than these."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    env |= {"XDG_DATA_HOME": str(home), "UNSTUCK_MEMORY_EMBEDDINGS": "mock"} | environ
    return subprocess.run(  # noqa: S603 - our own command
        [COMMAND, *args], env=env, cwd=home, capture_output=True, text=True, timeout=60, check=False
    )


def shown(home: Path, *args: str, **environ: str) -> tuple[Any, int]:
    """The status as JSON, and the exit code."""
    answer = run(home, "status", "--json", *args, **environ)
    assert answer.stdout, answer.stderr
    return json.loads(answer.stdout), answer.returncode
