"""Neo4jAddress: the server, database and options that a store's URL names, and the ids of the store's nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote

from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Ref
from unstuck.stores.shared.url_options import refuse_fragment, take_events
from unstuck.stores.shared.urls import NEO4J_DATABASE

_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9.-]{2,62}")
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Neo4jAddress:
    """Jobs are nodes with the ``label``; the labels of the store's other nodes begin with it.

    ``queue`` is the queue of the embedding jobs: nodes without a queue belong to it.
    """

    uri: str
    auth: tuple[str, str] | None = field(repr=False)
    database: str = NEO4J_DATABASE
    label: str = "EmbedJob"
    queue: str = "embedding"
    all_events: bool = False

    def node_id(self, queue: str, id_: str) -> str:
        """The ``id`` of a job's node, unique in the whole store. An embedding job's node has the id of the job.

        Names of queues have no slash, so no two jobs share a node id.
        """
        if queue != self.queue:
            return f"{queue}/{id_}"
        if "/" in id_:
            raise ConfigError(
                f"job id {id_[:60]!r} is not allowed in queue {queue!r} on Neo4j: it contains a slash"
            )
        return id_

    def ref(self, queue: str, node_id: str) -> Ref:
        """The job whose node has this ``id``."""
        return Ref(queue, node_id if queue == self.queue else node_id[len(queue) + 1 :])


def parse_address(parts: SplitResult, shown: str) -> Neo4jAddress:
    """Parse a ``neo4j://`` or ``bolt://`` URL."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    label = options.pop("label", "EmbedJob")
    queue = options.pop("queue", "embedding")
    all_events = take_events(options)
    database = unquote(parts.path.removeprefix("/")) or NEO4J_DATABASE
    if not _LABEL.fullmatch(label):
        raise ConfigError(
            f"store option label={label[:60]!r} is not allowed: use a letter, then up to 40 letters, digits and underscores"
        )
    if not _QUEUE.fullmatch(queue):
        raise ConfigError(
            f"store option queue={queue[:60]!r} is not allowed: it is not a valid name of a queue"
        )
    if unknown := sorted(options):
        raise ConfigError(f"store option {unknown[0]!r} is not known: neo4j takes label, queue and events")
    if not _DATABASE.fullmatch(database):
        raise ConfigError(
            f"store {shown} names no database: use neo4j://user:password@host:7687/{NEO4J_DATABASE}; a name has 3 to 63 letters, "
            "digits, dots and dashes"
        )
    refuse_fragment(parts, shown)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise ConfigError(
            f"store {shown} is not the address of a Neo4j server: use neo4j://user:password@host:7687/{NEO4J_DATABASE}"
        )
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    host = f"[{host}]" if ":" in host else host
    return Neo4jAddress(f"{parts.scheme}://{host}:{port or 7687}", auth, database, label, queue, all_events)
