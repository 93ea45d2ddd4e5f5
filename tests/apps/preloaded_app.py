"""A WSGI application that enqueues when it is imported, and again with each request: gunicorn forks in between."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from unstuck import Unstuck

app = Unstuck(os.environ["UNSTUCK_STORE"])


@app.task(queue="web")
async def work(of: str) -> str:
    return of


work.enqueue_sync("import")


def web(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    handle = work.enqueue_sync("request")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {handle.id}".encode()]
