"""The command run as people run it, in a folder with an app of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "unstuck")
CANARY = "cAnArY0123456789"
NOT_UTF8 = os.fsdecode(b"\xff")
STORE = "sqlite:///jobs.db"
LONGEST = 30.0  # seconds that it may take
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
    return subprocess.run(
        [COMMAND, *args],
        cwd=folder, env=_environment(store), stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace",
        timeout=LONGEST, check=False,
    )  # fmt: skip


def on_a_terminal(folder: Path, *args: str) -> tuple[int, str]:
    """The exit code of the command, and what somebody who sits before it sees."""
    ours, theirs = os.openpty()
    shown = b""
    with subprocess.Popen(
        [COMMAND, *args], cwd=folder, env=_environment(None), stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        hanging = threading.Timer(LONGEST, child.kill)
        hanging.start()
        with suppress(OSError):  # the end of a terminal
            while more := os.read(ours, 65536):
                shown += more
        code = child.wait()
        hanging.cancel()
    os.close(ours)
    return code, shown.decode()


def _environment(store: str | None) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("UNSTUCK", "REAPER"))}
    return env | ({"UNSTUCK_STORE": store} if store is not None else {})


def said(answer: Answer) -> Any:
    """What was printed as JSON."""
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)
