"""The store under attack: a private server, and a line to it for each group of clients that can be cut by itself."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.neo4j import QUEUE, Neo4j
from support.postgres import Postgres
from support.proxy import Proxy
from support.redis import Redis
from support.servers import Server

GROUPS = ("west", "east", "producers")
STORES = ("sqlite", "postgres", "redis", "neo4j")


@dataclass
class Place:
    """``urls`` has one address for each group of clients, ``url`` is the driver's own, which is never cut."""

    store: str
    url: str
    urls: dict[str, str]
    file: Path | None = None
    server: Server | None = None
    lines: dict[str, Proxy] = field(default_factory=dict)


@asynccontextmanager
async def place(store: str, folder: Path) -> AsyncIterator[Place]:
    if store == "sqlite":
        file = folder / "jobs.db"
        url = f"sqlite:///{file}"
        yield Place(store, url, dict.fromkeys(GROUPS, url), file=file)
        return
    async with AsyncExitStack() as stack:
        server, address = await asyncio.to_thread(_started, store)
        stack.push_async_callback(asyncio.to_thread, server.__exit__, None, None, None)
        lines = {group: await stack.enter_async_context(Proxy("127.0.0.1", server.port)) for group in GROUPS}
        urls = {group: address(line.port) for group, line in lines.items()}
        yield Place(store, address(server.port), urls, server=server, lines=lines)


def _started(store: str) -> tuple[Server, Callable[[int], str]]:
    """A running server, and its URL as seen through a port."""
    if store == "postgres":
        postgres = Postgres("15")
        postgres.start()
        schema = f"?schema=chaos_{secrets.token_hex(4)}"
        return postgres, lambda port: _through(postgres.url() + schema, postgres.port, port)
    if store == "redis":
        redis = Redis("redis")
        redis.start()
        return redis, lambda port: _through(redis.url(), redis.port, port)
    neo4j = Neo4j(QUEUE, password=True)
    neo4j.start()
    return neo4j, lambda port: _through(neo4j.url(), neo4j.port, port)


def _through(url: str, own: int, port: int) -> str:
    return url.replace(f":{own}", f":{port}", 1)
