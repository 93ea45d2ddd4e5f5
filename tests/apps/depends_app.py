"""Isolated tasks whose dependencies write to a file what becomes of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

from unstuck import Depends, Unstuck, current_job

app = Unstuck("sqlite:///:memory:")


def note(text: str) -> None:
    with Path(current_job().job.payload["file"]).open("a") as file:
        file.write(f"{text}\n")


async def engine() -> AsyncIterator[str]:
    note("engine")
    await asyncio.sleep(0)
    yield "engine"
    note("engine left")


def session(made: str = Depends(engine, scope="worker")) -> Iterator[str]:
    note("session")
    try:
        yield f"{made} session"
    except ValueError as error:
        note(f"session saw {error}")
        raise
    finally:
        note("session left")


def number() -> int:
    return 5


Session = Annotated[str, Depends(session)]


@app.task(isolate=True, retry=1)
async def in_its_own_loop(file: str, db: Session = "", n: int = Depends(number)) -> tuple[str, int, int]:
    return db, n, os.getpid()


@app.task(isolate=True, retry=1)
def in_its_main_thread(file: str, db: Session = "", fails: bool = False) -> tuple[str, int]:
    if fails:
        raise ValueError("no")
    return db, os.getpid()


@app.task(isolate=True, retry=1)
def without_depends(file: str) -> int:
    return os.getpid()
