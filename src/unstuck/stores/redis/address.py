"""RedisAddress: the server and options that a store's URL names, and the names of the store's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from redis.asyncio.connection import parse_url

from unstuck.protocol.errors import ConfigError
from unstuck.stores.shared.url_options import refuse_fragment, take_events

_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,60}|\{[A-Za-z0-9_.:-]{1,60}\}")
_DATABASE = re.compile(r"/?|/[0-9]{1,4}")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_WORDS = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
}
_TLS = (*_FILES, *_WORDS)
# The names of BullMQ's own keys of a queue: a job with such an id would have the same key.
RESERVED = {
    "active", "completed", "delayed", "events", "failed", "id", "limiter", "marker", "meta", "paused", "pc", "prioritized",
    "repeat", "stalled", "stalled-check", "wait", "waiting-children",
}  # fmt: skip
LONG = 17  # digits, more than a counter of BullMQ's ever has


@dataclass(frozen=True)
class RedisAddress:
    """``careless`` allows a server that may lose acknowledged jobs.

    In a ``cluster`` a prefix in braces keeps all keys in one slot. With any other prefix they are ``spread``: each queue's
    name is in braces and so gives the queue a slot of its own, and keys that belong to no queue share another slot.
    """

    connect: dict[str, Any] = field(repr=False)  # contains the password
    prefix: str
    all_events: bool
    careless: bool
    cluster: bool
    replicas: int = 0  # that must have a job before its enqueueing is acknowledged

    @cached_property
    def spread(self) -> bool:
        return self.cluster and not self.prefix.startswith("{")

    def keys(self, queues: Sequence[str]) -> list[str]:
        """The keys that a script gets: the store's counter and register of queues, and one key of each queue."""
        beside = queues[0] if queues else None
        metas = (self.of(queue, "meta") for queue in queues)
        return [self.own("number", beside), self.own("queues", beside), *metas]

    def own(self, name: str, beside: str | None = None) -> str:
        """A key of this store that belongs to no queue. Where keys are spread, it shares the slot of the queue ``beside``.

        BullMQ's keys have one more colon, so none of them has the same name.
        """
        if not self.spread:
            return f"{self.prefix}:unstuck.{name}"
        return f"{self.prefix}:{{unstuck}}.{name}" if beside is None else self.of(beside, f"unstuck:{name}")

    def of(self, queue: str, name: str) -> str:
        return f"{self.prefix}:{{{queue}}}:{name}" if self.spread else f"{self.prefix}:{queue}:{name}"

    def parts(self, key: str) -> tuple[str, str] | None:
        """The queue that a key belongs to, and its name there; None if the key belongs to no queue."""
        queue, colon, name = key.removeprefix(f"{self.prefix}:").partition(":")
        if self.spread and not (queue.startswith("{") and queue.endswith("}")):
            return None
        return (queue[1:-1] if self.spread else queue, name) if colon else None

    def check(self, queue: str, id_: str) -> None:
        """Refuse names that would collide with another key or move a key to another slot."""
        if ":" in queue or not queue or (self.spread and ("{" in queue or "}" in queue)):
            braces = ", and no braces where each queue has a slot" if self.spread else ""
            raise ConfigError(f"queue {queue[:60]!r} is not allowed on Redis: a name has no colon{braces}")
        if ":" in id_ or not id_ or id_ in RESERVED or (id_.isdecimal() and len(id_) < LONG):
            raise ConfigError(
                f"job id {id_[:60]!r} is not allowed on Redis: an id has no colon, is not one of BullMQ's own words, "
                "and is not a number, because BullMQ numbers its own jobs"
            )


def parse_address(parts: SplitResult, shown: str) -> RedisAddress:
    """Parse a ``redis://``, ``rediss://`` or ``unix://`` URL."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "bull")
    all_events = take_events(options)
    careless = options.pop("careless", "no")
    cluster = options.pop("cluster", "no")
    if cluster not in ("no", "yes"):
        raise ConfigError(f"store option cluster={cluster!r} is not allowed: use no (the default) or yes")
    replicas = options.pop("replicas", "0")
    if not replicas.isdecimal() or int(replicas) > 100:
        raise ConfigError(
            f"store option replicas={replicas[:20]!r} is not allowed: it is how many replicas must have a job before it is "
            "acknowledged, 0 (the default) to 100"
        )
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"store option prefix={prefix[:60]!r} is not allowed: use up to 60 letters, digits, dots, colons, dashes "
            "and underscores, all in braces to keep a cluster's keys in one slot"
        )
    if careless not in ("no", "yes"):
        raise ConfigError(
            f"store option careless={careless!r} is not allowed: use no (the default), or yes to allow a server whose "
            "settings lose jobs"
        )
    if unknown := sorted(options.keys() - {"db", *_TLS}):
        raise ConfigError(
            f"store option {unknown[0]!r} is not known: redis takes prefix, events, careless, cluster, replicas, db and {', '.join(_TLS)}"
        )
    _check_tls(parts.scheme, options)
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        raise ConfigError(
            f"store {shown} is not allowed: the host is followed by the number of a database, such as /0; write a slash "
            "in a password as %2F"
        )
    if cluster == "yes" and parts.scheme == "unix":
        raise ConfigError(
            f"store {shown} names one server by its socket: write a cluster as redis://host:6379?cluster=yes"
        )
    refuse_fragment(parts, shown)
    try:
        connect = parse_url(
            urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(options), "")),
        )
    except (ValueError, TypeError):
        raise ConfigError(
            f"store {shown} is not the address of a Redis server: use redis://host:6379/0"
        ) from None
    return RedisAddress(dict(connect), prefix, all_events, careless == "yes", cluster == "yes", int(replicas))


def _check_tls(scheme: str, options: Mapping[str, str]) -> None:
    for name in _TLS:
        value = options.get(name)
        if value is None:
            continue
        if scheme != "rediss":
            raise ConfigError(f"store option {name} is for rediss://, which uses TLS, not for {scheme}://")
        if name in _FILES and not Path(value).is_file():
            raise ConfigError(f"store option {name}={value[:200]!r} is not allowed: the file does not exist")
        if name in _WORDS and value not in _WORDS[name]:
            allowed = " or ".join(_WORDS[name])
            raise ConfigError(f"store option {name}={value[:20]!r} is not allowed: use {allowed}")
