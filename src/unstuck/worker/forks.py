"""Forks in handlers: a child that comes back into our code would be a second worker on the same connections. It ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from unstuck.app.context import current_jobs
from unstuck.protocol.errors import UnstuckError
from unstuck.text.logs import JsonLines

_loops: list[tuple[int, asyncio.AbstractEventLoop]] = []  # that run handlers, each with its thread


@contextmanager
def no_child_turns_this_loop() -> Iterator[None]:
    """While it is entered, a child that was forked on the running event loop ends when it comes back to it."""
    entry = threading.get_ident(), asyncio.get_running_loop()
    _loops.append(entry)
    try:
        yield
    finally:
        _loops.remove(entry)


def end_unless(pid: int) -> None:
    """End this process if it is not the one in which the handler was called."""
    if os.getpid() != pid:
        _end()


def _end() -> NoReturn:
    # Written by hand: a lock of the log may be held for ever, by a thread that is not in this process.
    record = logging.makeLogRecord(
        {
            "name": "unstuck.worker",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": f"{_who()} forked, and its child, process {os.getpid()}, came back to the worker: it was ended. "
            "End a forked child with os._exit(), or start a program with subprocess",
        }
    )
    with suppress(OSError):
        os.write(2, JsonLines().format(record).encode() + b"\n")
    os._exit(1)


def _who() -> str:
    try:
        return f"task {current_jobs()[0].job.task}"
    except UnstuckError:
        return "something"


def _in_child() -> None:
    mine = [loop for thread, loop in _loops if thread == threading.get_ident()]
    _loops.clear()
    if not mine:
        return
    # Both processes would wait for, and change, what one epoll knows of.
    with suppress(OSError):
        _replace_epolls()
    for loop in mine:
        with suppress(RuntimeError):  # closed
            end = loop.call_soon(_end)
            # Before all others that are ready: they are jobs that the parent runs.
            for ready in gc.get_referents(loop):
                if isinstance(ready, deque) and ready and ready[-1] is end:
                    ready.rotate(1)


def _replace_epolls() -> None:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if entry.readlink().name == "anon_inode:[eventpoll]":
                with select.epoll() as empty:
                    os.dup2(empty.fileno(), int(entry.name), inheritable=False)


os.register_at_fork(after_in_child=_in_child)
