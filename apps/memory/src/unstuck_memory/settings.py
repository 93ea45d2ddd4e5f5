"""Settings: where the graph and its jobs live, and what makes the embeddings. They come from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unstuck import ConfigError, env_text, neo4j_url
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.embeddings.queue import embed_store
from unstuck_memory.errors import SettingsError
from unstuck_memory.graph import Graph

URI_VARIABLE = "NEO4J_URI"
JOBS_VARIABLE = "UNSTUCK_MEMORY_JOBS"
GRAPH_FILE, JOBS_FILE = "graph.db", "jobs.db"


@dataclass(frozen=True)
class Neo4jDatabase:
    """A database of a server, as NEO4J_URI, _USERNAME, _PASSWORD and _DATABASE name it."""

    uri: str
    username: str = "neo4j"
    password: str = ""
    database: str = "neo4j"

    def __repr__(self) -> str:
        return f"{self.uri}/{self.database}"


@dataclass(frozen=True)
class Settings:
    """``graph_at`` is a file or a database; ``jobs_at`` the URL of a job store. ``folder`` is where files are, if there are any."""

    graph_at: Path | Neo4jDatabase
    jobs_at: str
    folder: Path | None

    def graph(self) -> Graph:
        """The graph, not opened yet. The folder is made, for its owner alone."""
        if self.folder is not None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if isinstance(self.graph_at, Neo4jDatabase):
            if find_spec("neo4j") is None:
                raise SettingsError(
                    "neo4j is not installed: install unstuck-memory[neo4j], or unset NEO4J_URI"
                )
            from unstuck_memory.graphs.neo4j import Neo4jGraph

            at = self.graph_at
            return Neo4jGraph(at.uri, at.username, at.password, at.database)
        from unstuck_memory.graphs.sqlite import SqliteGraph

        return SqliteGraph(self.graph_at)


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the settings; nothing is opened or made."""
    uri, username, password, database = (
        env_text(environ, f"NEO4J_{part}") for part in ("URI", "USERNAME", "PASSWORD", "DATABASE")
    )
    folder = data_folder(environ)
    graph = neo4j_database(uri, username, password, database) if uri else folder / GRAPH_FILE
    jobs = env_text(environ, JOBS_VARIABLE) or _embed_store(environ)
    return Settings(graph, jobs or f"sqlite:///{folder / JOBS_FILE}", None if uri and jobs else folder)


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the files: ``unstuck-memory`` in XDG_DATA_HOME, or in ~/.local/share."""
    home = env_text(environ, "XDG_DATA_HOME")
    if home is not None and not Path(home).is_absolute():
        raise SettingsError(
            f"XDG_DATA_HOME is {home!r:.60}: it must be an absolute path, for example /home/ann/data"
        )
    return (Path(home) if home else Path.home() / ".local" / "share") / "unstuck-memory"


def neo4j_database(
    uri: str, username: str | None, password: str | None, database: str | None, *, what: str = URI_VARIABLE
) -> Neo4jDatabase:
    """A database, checked as far as that is possible without asking the server."""
    try:
        neo4j_url(uri, username, password, database, what=what)
    except ConfigError as error:
        raise SettingsError(str(error)) from None
    return Neo4jDatabase(uri, username or "neo4j", password or "", database or "neo4j")


def provider(environ: Mapping[str, str] = os.environ) -> Provider:
    return open_provider(environ=environ)


def _embed_store(environ: Mapping[str, str]) -> str | None:
    try:
        return embed_store(environ)
    except ConfigError as error:
        raise SettingsError(str(error)) from None
