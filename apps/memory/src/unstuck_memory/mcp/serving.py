"""Runs the server until its client leaves or somebody stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from unstuck_memory.mcp import stdio
from unstuck_memory.mcp.opened import Options, opened
from unstuck_memory.mcp.server import memory_server

if TYPE_CHECKING:
    from unstuck_memory.mcp.http import Access

LAST = 1.8  # seconds from the end of input to the end of the process, whatever happens


async def serve_stdio(options: Options) -> None:
    """Serve the client at standard input and output. The process ends soon after its input does."""
    with stdio.wire() as (source, sink):
        async with opened(options) as served:
            server = memory_server(served, options.listed())
            serving = asyncio.current_task()
            assert serving is not None
            _on_signals(serving.cancel)
            try:
                await stdio.run(server, source, sink, _leave_in_time)
            except asyncio.CancelledError:
                serving.uncancel()
                _leave_in_time()


def _leave_in_time() -> None:
    """What still computes or waits in a thread holds nothing up: its jobs go to other workers."""
    timer = threading.Timer(LAST, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _on_signals(stop: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def serve_http(options: Options, who: Access) -> None:
    """Serve at an address until a signal; its URL is printed to standard error."""
    import uvicorn  # a client at standard input and output need not wait for these

    from unstuck_memory.mcp.http import asgi, listening

    with listening(who) as found:
        async with opened(options) as served:
            app = asgi(served, options.listed(), who)
            server = uvicorn.Server(
                uvicorn.Config(
                    app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2
                )
            )
            _on_signals(lambda: None)  # what uvicorn was stopped by, it raises again at its end
            host, port = found.getsockname()[:2]
            click.echo(f"listening at http://{f'[{host}]' if ':' in host else host}:{port}/mcp", err=True)
            await server.serve(sockets=[found])
