"""``worker --reload``: start the workers again whenever a Python file changes. For development only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

EVERY = 0.5  # seconds between looks
_SKIPPED = {"node_modules", "__pycache__"}


async def changed(folder: Path) -> Path:
    """The first Python file below the folder that changes, comes or goes from now on."""
    before = await asyncio.to_thread(_stamps, folder)
    while True:
        await asyncio.sleep(EVERY)
        now = await asyncio.to_thread(_stamps, folder)
        if now != before:
            return next(file for file in {**before, **now} if before.get(file) != now.get(file))


def _stamps(folder: Path) -> dict[Path, int]:
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                file = Path(where, name)
                try:
                    yield file, file.stat().st_mtime_ns
                except FileNotFoundError:  # gone since
                    continue
