"""The command run as people run it, in a folder with an app of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "unstuck")
CANARY = "cAnArY0123456789"
NOT_UTF8 = os.fsdecode(b"\xff")
STORE = "sqlite:///jobs.db"
TASKS = """
from unstuck import Permanent, Unstuck
app = Unstuck("sqlite:///elsewhere.db")

@app.task(queue="mail")
async def send(to: str, count: int = 1) -> str:
    return f"{count} to {to}"

@app.task
def fail() -> None:
    raise Permanent("no such entity: token=CANARY \\x1b[2J")
""".replace("CANARY", CANARY)
Answer = subprocess.CompletedProcess[str]
Command = Callable[..., Answer]


def unstuck(folder: Path, *args: str, store: str | None = STORE, stdout: Any = subprocess.PIPE) -> Answer:
    """Run the command in a folder, with the store named by the environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("UNSTUCK", "REAPER"))}
    env |= {"UNSTUCK_STORE": store} if store is not None else {}
    return subprocess.run(
        [COMMAND, *args],
        cwd=folder, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", timeout=30, check=False,
    )  # fmt: skip


def said(answer: Answer) -> Any:
    """What was printed as JSON."""
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)
