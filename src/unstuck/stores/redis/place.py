"""Place: where a Redis store is, as its URL says it, and how its keys are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from redis.asyncio.connection import parse_url

from unstuck.errors import ConfigError
from unstuck.stores.address import refuse_fragment, take_events

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,60}|\{[A-Za-z0-9_.-]{1,60}\}")
_DATABASE = re.compile(r"/?|/[0-9]{1,4}")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_WORDS = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
}
_TLS = (*_FILES, *_WORDS)
# What BullMQ calls its own keys of a queue: a job of that name would be one of them.
RESERVED = {
    "active", "completed", "delayed", "events", "failed", "id", "limiter", "marker", "meta", "paused", "pc", "prioritized",
    "repeat", "stalled", "stalled-check", "wait", "waiting-children",
}  # fmt: skip
LONG = 17  # digits that no counter of BullMQ's comes to


@dataclass(frozen=True)
class Place:
    """``careless`` means that a server which may lose acknowledged jobs is used nevertheless.

    In a ``cluster`` a prefix in braces keeps all keys in one slot. Under another one they are ``spread``: each queue has a
    slot, that of its name, which is in braces then; what belongs to no queue has one of its own.
    """

    connect: dict[str, Any] = field(repr=False)  # it has the password
    prefix: str
    all_events: bool
    careless: bool
    cluster: bool
    replicas: int = 0  # that must have a job before its enqueueing is answered

    @cached_property
    def spread(self) -> bool:
        return self.cluster and not self.prefix.startswith("{")

    def keys(self, queues: Sequence[str]) -> list[str]:
        """The keys of a script: the store's counter and register, and one of each queue."""
        beside = queues[0] if queues else None
        metas = (self.of(queue, "meta") for queue in queues)
        return [self.own("number", beside), self.own("queues", beside), *metas]

    def own(self, name: str, beside: str | None = None) -> str:
        """A key of this store that belongs to no queue, or where they are spread, to the queue that it is beside.

        BullMQ's keys have a colon more, so none is like it.
        """
        if not self.spread:
            return f"{self.prefix}:unstuck.{name}"
        return f"{self.prefix}:{{unstuck}}.{name}" if beside is None else self.of(beside, f"unstuck:{name}")

    def of(self, queue: str, name: str) -> str:
        return f"{self.prefix}:{{{queue}}}:{name}" if self.spread else f"{self.prefix}:{queue}:{name}"

    def parts(self, key: str) -> tuple[str, str] | None:
        """The queue that a key belongs to, and what it is called there; None if it is no queue's."""
        queue, colon, name = key.removeprefix(f"{self.prefix}:").partition(":")
        if self.spread and not (queue.startswith("{") and queue.endswith("}")):
            return None
        return (queue[1:-1] if self.spread else queue, name) if colon else None

    def check(self, queue: str, id_: str) -> None:
        """Refuse what would be the name of another key, or in another slot."""
        if ":" in queue or not queue or (self.spread and ("{" in queue or "}" in queue)):
            braces = ", and no braces where each queue has a slot" if self.spread else ""
            raise ConfigError(f"queue {queue[:60]!r} is not allowed on Redis: a name has no colon{braces}")
        if ":" in id_ or not id_ or id_ in RESERVED or (id_.isdecimal() and len(id_) < LONG):
            raise ConfigError(
                f"job id {id_[:60]!r} is not allowed on Redis: no colon, none of BullMQ's own words, and no number, "
                "which the next job of Node's may have"
            )


def place(parts: SplitResult, shown: str) -> Place:
    """What a ``redis://``, ``rediss://`` or ``unix://`` URL means."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "bull")
    all_events = take_events(options)
    careless = options.pop("careless", "no")
    cluster = options.pop("cluster", "no")
    if cluster not in ("no", "yes"):
        raise ConfigError(f"store option cluster={cluster!r} is not allowed: no (the default) or yes")
    replicas = options.pop("replicas", "0")
    if not replicas.isdecimal() or int(replicas) > 100:
        raise ConfigError(
            f"store option replicas={replicas[:20]!r} is not allowed: how many replicas must have a job before it is "
            "acknowledged, 0 (the default) to 100"
        )
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"store option prefix={prefix[:60]!r} is not allowed: up to 60 letters, digits, dots, dashes and "
            "underscores, all of them in braces if they are to keep a cluster's keys together"
        )
    if careless not in ("no", "yes"):
        raise ConfigError(
            f"store option careless={careless!r} is not allowed: no (the default), or yes to use a server whose "
            "settings lose jobs"
        )
    if unknown := sorted(options.keys() - {"db", *_TLS}):
        raise ConfigError(
            f"store option {unknown[0]!r} is not known: redis takes prefix, events, careless, cluster, replicas, db and {', '.join(_TLS)}"
        )
    _check_tls(parts.scheme, options)
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        raise ConfigError(
            f"store {shown} is not allowed: behind the host is the number of a database, such as /0; in a password a "
            "slash is written as %2F"
        )
    if cluster == "yes" and parts.scheme == "unix":
        raise ConfigError(
            f"store {shown} is one server by its socket: a cluster is redis://host:6379?cluster=yes"
        )
    refuse_fragment(parts, shown)
    try:
        connect = parse_url(
            urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(options), "")),
        )
    except (ValueError, TypeError):
        raise ConfigError(f"store {shown} is no address of a Redis server: redis://host:6379/0") from None
    return Place(dict(connect), prefix, all_events, careless == "yes", cluster == "yes", int(replicas))


def _check_tls(scheme: str, options: Mapping[str, str]) -> None:
    for name in _TLS:
        value = options.get(name)
        if value is None:
            continue
        if scheme != "rediss":
            raise ConfigError(f"store option {name} is for rediss://, which means TLS, not for {scheme}://")
        if name in _FILES and not Path(value).is_file():
            raise ConfigError(f"store option {name}={value[:200]!r} is not allowed: there is no such file")
        if name in _WORDS and value not in _WORDS[name]:
            allowed = " or ".join(_WORDS[name])
            raise ConfigError(f"store option {name}={value[:20]!r} is not allowed: {allowed}")
