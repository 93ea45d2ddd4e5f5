"""Whom root lends a server to that refuses root, and what that user can reach."""

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict


class Identity(TypedDict, total=False):
    """What makes ``subprocess`` run a command as somebody else."""

    user: int
    group: int
    extra_groups: list[int]


def unprivileged() -> str | None:
    """Who runs a server that refuses root; None is whoever runs the tests, if that is not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def identity(user: str | None) -> Identity:
    """To become ``user`` in the child itself: ``su`` would stand between it and the test, and its signals."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def run(argv: Sequence[str | Path], user: str | None = None) -> str:
    """Run a command to its end and return what it printed. What a failure printed is in the error."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",  # where the tests run may be closed to this user
        **identity(user),
    )
    assert done.returncode == 0, (
        f"{argv} as {user or 'ourselves'} ended with {done.returncode}\n{done.stdout}"
    )
    return done.stdout


def can_run(program: Path, user: str | None) -> bool:
    """Whether the user reaches the program and all it needs: it must be able to say its version."""
    try:
        run([program, "--version"], user)
    except (OSError, AssertionError):
        return False
    return True


def open_folder(user: str | None) -> Path:
    """A new folder that ``user`` can pass through, removed at the end of the run at the latest.

    pytest's own are closed to all but who runs the tests.
    """
    # Root's own folder for such things may be closed as well.
    folder = Path(tempfile.mkdtemp(prefix="unstuck-", dir=None if user is None else "/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o711)
    return folder
