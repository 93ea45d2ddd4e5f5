"""Marks: what handlers leave behind, so that all contestants are timed by the same clock.

Standard library only: it is imported inside every contestant's environment.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

PATH = Path(os.environ.get("BENCH_MARKS", ""))
PAD = "x" * 100
_record = struct.Struct("<qq")
_file: int | None = None


def mark(number: int) -> None:
    """Note that a job started; the whole work of every handler. One append, so threads need no lock."""
    global _file  # noqa: PLW0603 - opened in the process that works, not in the one that imports
    if _file is None:
        _file = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_file, _record.pack(number, time.monotonic_ns()))


def count(path: Path = PATH) -> int:
    try:
        return path.stat().st_size // _record.size
    except FileNotFoundError:
        return 0


def read(path: Path = PATH) -> list[tuple[int, int]]:
    """Job numbers and nanoseconds, in the order of their starts."""
    data = path.read_bytes()
    return list(_record.iter_unpack(data[: len(data) // _record.size * _record.size]))
