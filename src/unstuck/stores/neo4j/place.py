"""Place: where a Neo4j store is, as its URL says it, and what its nodes are called."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote

from unstuck.environ import EMBED_JOB_DATABASE
from unstuck.errors import ConfigError
from unstuck.model import Ref
from unstuck.stores.address import refuse_fragment, take_events

_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9.-]{2,62}")
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Place:
    """Jobs are nodes with the ``label``; what else the store keeps has labels that begin with it.

    ``queue`` is that of the embedding jobs: nodes that say nothing of a queue belong to it.
    """

    uri: str
    auth: tuple[str, str] | None = field(repr=False)
    database: str = EMBED_JOB_DATABASE
    label: str = "EmbedJob"
    queue: str = "embedding"
    all_events: bool = False

    def address(self, queue: str, id_: str) -> str:
        """The ``id`` of a job's node, unique in the whole store. An embedding job's is its own.

        Names of queues have no slash, so no two jobs have the same.
        """
        if queue != self.queue:
            return f"{queue}/{id_}"
        if "/" in id_:
            raise ConfigError(
                f"job id {id_[:60]!r} is not allowed in queue {queue!r} on Neo4j: it has a slash"
            )
        return id_

    def ref(self, queue: str, address: str) -> Ref:
        """The job whose node has this ``id``."""
        return Ref(queue, address if queue == self.queue else address[len(queue) + 1 :])


def place(parts: SplitResult, shown: str) -> Place:
    """What a ``neo4j://`` or ``bolt://`` URL means."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    label = options.pop("label", "EmbedJob")
    queue = options.pop("queue", "embedding")
    all_events = take_events(options)
    database = unquote(parts.path.removeprefix("/")) or EMBED_JOB_DATABASE
    if not _LABEL.fullmatch(label):
        raise ConfigError(
            f"store option label={label[:60]!r} is not allowed: a letter, then up to 40 letters, digits and underscores"
        )
    if not _QUEUE.fullmatch(queue):
        raise ConfigError(f"store option queue={queue[:60]!r} is not allowed: it is no name of a queue")
    if unknown := sorted(options):
        raise ConfigError(f"store option {unknown[0]!r} is not known: neo4j takes label, queue and events")
    if not _DATABASE.fullmatch(database):
        raise ConfigError(
            f"store {shown} names no database: neo4j://user:password@host:7687/{EMBED_JOB_DATABASE}; a name has 3 to 63 letters, "
            "digits, dots and dashes"
        )
    refuse_fragment(parts, shown)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise ConfigError(
            f"store {shown} is no address of a Neo4j server: neo4j://user:password@host:7687/{EMBED_JOB_DATABASE}"
        )
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    host = f"[{host}]" if ":" in host else host
    return Place(f"{parts.scheme}://{host}:{port or 7687}", auth, database, label, queue, all_events)
