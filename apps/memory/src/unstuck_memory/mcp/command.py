"""The verb ``unstuck-memory mcp``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Literal

import click


@click.command()
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    help="Serve over HTTP at this address. [default: standard input and output]",
)
@click.option(
    "--project", default="default", show_default=True, help="Whose memory it is. Nothing reaches another one."
)
@click.option(
    "--tools",
    "which",
    type=click.Choice(["core", "all"]),
    default="all",
    show_default=True,
    help="The most needed tools, or all.",
)
@click.option("--no-worker", is_flag=True, help="Leave the embeddings to other processes.")
def mcp(address: str | None, project: str, which: Literal["core", "all"], *, no_worker: bool) -> None:
    """Serve the memory to an assistant, over MCP."""
    from unstuck_memory.mcp.opened import Options
    from unstuck_memory.mcp.serving import serve_http, serve_stdio

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    options = Options(project, which, worker=not no_worker)
    if address is not None:
        from unstuck_memory.mcp.http import access

        asyncio.run(serve_http(options, access(address)))
        return
    asyncio.run(serve_stdio(options))
    sys.stderr.flush()
    os._exit(0)  # threads that still compute are not waited for
