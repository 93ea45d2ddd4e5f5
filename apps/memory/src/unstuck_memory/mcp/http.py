"""The server over HTTP: for this machine, or for others that know a token and its name."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from unstuck import env_text
from unstuck_memory.errors import SettingsError, UnstuckMemoryError
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.server import memory_server
from unstuck_memory.mcp.tool import Tool

TOKEN_VARIABLE, HOSTS_VARIABLE = "UNSTUCK_MEMORY_TOKEN", "UNSTUCK_MEMORY_HOSTS"
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
SHORTEST = 16  # characters of a token
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::\d{1,5})?")


@dataclass(frozen=True)
class Access:
    """Where the server listens, under which names, and the token that is asked for."""

    host: str
    port: int
    names: frozenset[str] = LOCAL
    token: str | None = None


def access(address: str, environ: Mapping[str, str] = os.environ) -> Access:
    """Of HOST:PORT. An address that others can reach needs a token and the names by which they call it."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"--http is {address!r:.60}: it must be HOST:PORT, for example 127.0.0.1:8765")
    token = env_text(environ, TOKEN_VARIABLE)
    if token is not None and (
        len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise SettingsError(
            f"{TOKEN_VARIABLE} cannot be used: it must have at least {SHORTEST} printable ASCII characters without spaces; make one "
            "with: openssl rand -hex 32"
        )
    names = {
        name.strip().lower() for name in (env_text(environ, HOSTS_VARIABLE) or "").split(",") if name.strip()
    }
    if not _is_local(host) and not (token and names):
        raise SettingsError(
            f"--http is {address!r:.60}, which other machines can reach: that needs {TOKEN_VARIABLE}, and {HOSTS_VARIABLE} with the "
            "names by which they call this one, for example memory.example.org; set both, or use 127.0.0.1"
        )
    return Access(host, int(port), frozenset(names) | (LOCAL | {host} if _is_local(host) else set()), token)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def asgi(served: Served, tools: Mapping[str, Tool], who: Access) -> Starlette:
    """The application: ``/mcp`` and ``/healthz``. It does not open or close what is served."""
    # No sessions: none can be lost or pile up, and no tool talks back to the client.
    manager = StreamableHTTPSessionManager(memory_server(served, tools), json_response=True, stateless=True)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    async def healthz(_: Request) -> JSONResponse:
        try:
            await served.graph.now()
        except UnstuckMemoryError:
            return JSONResponse({"status": "the graph does not answer"}, 503)
        return JSONResponse({"status": "ok"})

    return Starlette(
        # Only POST: nobody waits for messages that are never sent.
        routes=[Route("/healthz", healthz), Route("/mcp", StreamableHTTPASGIApp(manager), methods=["POST"])],
        middleware=[Middleware(Guard, names=who.names, token=who.token)],
        lifespan=lifespan,
    )


class Guard:
    """Refuses requests for other hosts (421), from pages of other origins (403), and without the token (401)."""

    def __init__(self, app: ASGIApp, names: Collection[str], token: str | None) -> None:
        self._app, self._names, self._token = app, names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> PlainTextResponse | None:
        if (origin := headers.get("origin")) is not None and not self._known_origin(origin):
            return PlainTextResponse("this origin is not allowed", 403)
        if path == "/healthz":  # a caller, perhaps by address, learns nothing else
            return None
        host = _HOST.fullmatch(headers.get("host", "").lower())
        if host is None or host[1].strip("[]") not in self._names:
            return PlainTextResponse("this host name is not served here", 421)
        if (
            self._token is not None
            and path == "/mcp"
            and not self._authorized(headers.get("authorization", ""))
        ):
            return PlainTextResponse("a bearer token is needed", 401, {"WWW-Authenticate": "Bearer"})
        return None

    def _known_origin(self, origin: str) -> bool:
        try:
            return urlsplit(origin).hostname in self._names
        except ValueError:
            return False

    def _authorized(self, given: str) -> bool:
        scheme, _, token = given.partition(" ")
        assert self._token is not None
        same = hmac.compare_digest(token.strip().encode(), self._token.encode())
        return same and scheme.lower() == "bearer"


def listening(who: Access) -> socket.socket:
    """A socket at that address; port 0 takes a free one."""
    kind = socket.AF_INET6 if ":" in who.host else socket.AF_INET
    try:
        return socket.create_server((who.host, who.port), family=kind, backlog=128)
    except OSError as error:
        raise SettingsError(
            f"cannot listen at {who.host}:{who.port}: {error.strerror or error}; choose another address or port"
        ) from None
