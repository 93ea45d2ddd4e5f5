"""Real child processes that tests wait for, pause and kill, and that never outlive their test."""

import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from support.kin import Entry, alive, bearers, kin, processes
from support.users import identity
from support.waiting import tail, until, until_async

__all__ = ["Child", "Reach", "alive", "kin", "tail", "until", "until_async"]

MARK = "UNSTUCK_TEST_CHILD"
PATIENCE = 30.0  # seconds for what takes a moment, on a machine that is busy with something else

Reach = Literal["process", "group", "family"]
"""Whom a signal reaches: the child alone; its process group; or all that came of it, in whatever group."""


class Child:
    """A command running in a session of its own, stdout and stderr appended to ``log``. It starts at once.

    ``env`` is added to this process's environment; root can run it as another ``user``. Leaving the context
    kills the whole family: descendants, the group, and orphans. Those that nobody saw before their parent died
    are known by a mark in their environment, but only where /proc exists.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.log = log
        self._mark = uuid.uuid4().hex
        self._known: set[tuple[int, str]] = set()
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), MARK: self._mark},
                cwd=cwd,
                start_new_session=True,
                **identity(user),
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Child {self.pid}: {' '.join(self.argv)}>"

    @property
    def exit_code(self) -> int | None:
        """None while it runs, -N after death by signal N."""
        return self._process.poll()

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, once there is one."""
        until(lambda: self.exit_code is not None, timeout, f"the end of {self}", self.log)
        return self._process.wait()

    def says(self, pattern: str) -> str | None:
        """The first whole line of this child's output in which the regular expression is found so far."""
        with self.log.open("rb") as output:
            output.seek(self._log_start)
            written = output.read().decode(errors="replace")
        lines = written.rpartition("\n")[0].splitlines()
        return next((line for line in lines if re.search(pattern, line)), None)

    def until_line(self, pattern: str, timeout: float = PATIENCE) -> str:
        """The first line like this; fails as soon as the child ends without it."""
        return until(lambda: self._said(pattern), timeout, f"{pattern!r} from {self}", self.log)

    async def until_line_async(self, pattern: str, timeout: float = PATIENCE) -> str:
        """``until_line`` beside a running event loop."""
        what = f"{pattern!r} from {self}"
        return await until_async(lambda: self._said(pattern), timeout, what, self.log)

    def family(self) -> set[int]:
        """Pids of the living that came of this child, itself included."""
        return self._reached("family")

    def pause(self, to: Reach = "process") -> None:
        """SIGSTOP; returns when everyone reached has stopped."""
        assert self.exit_code is None, f"{self} ended with {self.exit_code}: nothing to pause"
        self._insist(signal.SIGSTOP, to, lambda entry: not entry.stopped)

    def resume(self, to: Reach = "process") -> None:
        """SIGCONT; returns when nobody reached is stopped."""
        self._insist(signal.SIGCONT, to, lambda entry: entry.stopped)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the child to end, by SIGTERM or another signal; ``wait`` tells what came of it."""
        self._process.send_signal(number)

    def kill(self, to: Reach = "process") -> int:
        """SIGKILL; returns the child's exit code when everyone reached is dead."""
        self.family()  # to be known later, when they are orphans
        self._insist(signal.SIGKILL, to, lambda entry: True)
        return self.wait()

    def close(self) -> None:
        """Leave nobody behind."""
        try:
            self.kill("family")
        finally:  # whatever went wrong, at least the child itself is gone
            self._process.kill()
            self._process.wait()

    def _said(self, pattern: str) -> str | None:
        ended = self.exit_code is not None  # asked first: what it said last must not be missed
        line = self.says(pattern)
        assert line or not ended, f"{self} ended with {self.exit_code} before {pattern!r}\n{tail(self.log)}"
        return line

    def _reached(self, to: Reach) -> set[int]:
        entries = processes()
        # Once the child is reaped, its pid may go to a stranger, though not while its group has members.
        reaped = self._process.returncode is not None
        reached = set() if reaped else {self.pid} & entries.keys()
        if to != "process" and not (reaped and self.pid in entries):
            reached |= {entry.pid for entry in entries.values() if entry.group == self.pid}
        if to == "family":
            reached |= kin(self.pid) if self.pid in reached else set()
            reached |= bearers(f"{MARK}={self._mark}")
            reached |= {pid for pid, entry in entries.items() if (pid, entry.born) in self._known}
            self._known |= {(pid, entries[pid].born) for pid in reached & entries.keys()}
        return reached

    def _insist(self, number: signal.Signals, to: Reach, defies: Callable[[Entry], bool]) -> None:
        reached: set[int] = set()
        what = f"{number.name} to take hold of {self} ({to})"
        until(lambda: not self._press(number, to, reached, defies), PATIENCE, what, self.log)

    def _press(
        self, number: signal.Signals, to: Reach, reached: set[int], defies: Callable[[Entry], bool]
    ) -> bool:
        """Signal everyone reached who still defies it, and say whether there was one.

        Who is reached grows: a family may fork meanwhile, and orphans are no longer found as kin.
        """
        reached |= self._reached(to)
        entries = processes()
        defiant = [pid for pid in reached if pid in entries and defies(entries[pid])]
        for pid in defiant:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(defiant)
