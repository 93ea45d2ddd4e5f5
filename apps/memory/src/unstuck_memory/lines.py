"""Files of lines: read with the numbers of the lines, and written whole or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

LONGEST = 64 * 1024 * 1024  # bytes of a line: the largest entity that is allowed fits
BOM = b"\xef\xbb\xbf"


def numbered(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines that are not blank, counted from 1; None for one that is too long to be read."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM)
            if len(line) > LONGEST:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST)
                yield number, None
            elif line.strip():
                yield number, line


async def write(path: Path, lines: AsyncIterator[bytes]) -> int:
    """Write a file that only its owner can read; answers how many lines. Whoever reads the path sees the whole file, or what was there."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:  # made with 0600
        try:
            count = 0
            async for line in lines:
                file.write(line)
                count += 1
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
            await asyncio.to_thread(Path(file.name).replace, path)
        except BaseException:
            await asyncio.to_thread(Path(file.name).unlink)
            raise
    return count
