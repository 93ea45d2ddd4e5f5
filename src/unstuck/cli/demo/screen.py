"""What one sees of the demo: a picture that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from unstuck import Counts
from unstuck.cli.demo.play import KINDS

BAR = 40


class Screen:
    """``show`` may be called as often as one likes; it draws ten times a second, or prints once a second."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._began = time.monotonic()
        self._drawn = 0
        self._last = 0.0

    def show(self, counts: Sequence[Counts], event: str) -> None:
        if event:
            self._print(f"{self._clock()}  {event}")
        if not self._live and time.monotonic() - self._last < 1.0:
            return
        self._last = time.monotonic()
        lines = [_line(of) for of in sorted(counts, key=lambda of: list(KINDS).index(of.queue))]
        if self._live:
            self._erase()
            print("\n".join(lines), flush=True)
            self._drawn = len(lines)
        elif not event:
            done = sum(of.completed for of in counts)
            running = sum(of.processing for of in counts)
            waiting = sum(of.pending for of in counts)
            print(f"{self._clock()}  {done} done, {running} running, {waiting} waiting", flush=True)

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        print()
        for name, value in rows:
            print(f"  {name:42}{value:>10}")
        print(flush=True)

    def _print(self, text: str) -> None:
        self._erase()
        print(text, flush=True)

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")
            self._drawn = 0

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:5.1f} s"


def _line(of: Counts) -> str:
    total = KINDS[of.queue]
    done, dead, running = (round(BAR * part / total) for part in (of.completed, of.failed, of.processing))
    bar = ("█" * done + "▓" * min(running, BAR - done) + "x" * dead)[:BAR].ljust(BAR, "·")
    return f"  {of.queue:8} {bar} {of.completed:5} done {of.processing:4} running {of.failed:3} dead"
