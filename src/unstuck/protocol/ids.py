"""Names for new things: ids of jobs, of worker processes, and the keys of scheduled jobs."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from datetime import UTC, datetime
from random import Random

from unstuck.protocol.job import Lease

# A generator of our own, because an application may seed the common one; and a fresh one after a fork,
# because two processes that draw the same ids would take each other's jobs for duplicates.
_chance = Random(os.urandom(32))  # noqa: S311 - unique, not secret
os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))


def new_id() -> str:
    """Time first, so that ids made one after the other lie side by side in an index; then chance."""
    return (time.time_ns() // 1_000_000 << 80 | _chance.getrandbits(80)).to_bytes(16, "big").hex()


def keyed_id(queue: str, key: str) -> str:
    """The id of the job that has this key in this queue; the same for everybody who asks."""
    return hashlib.blake2b(f"{queue}\0{key}".encode(), digest_size=16).hexdigest()


def slot_key(schedule: str, slot: datetime) -> str:
    """The key of the job that a schedule enqueues for a slot."""
    return f"schedule:{schedule}:{slot.isoformat()}"


def slot_of(key: str | None) -> datetime | None:
    """The slot that a key names, if it is one of a schedule's."""
    match (key or "").split(":", 2):
        case ["schedule", _, text]:
            try:
                slot = datetime.fromisoformat(text)
            except ValueError:
                return None
            return None if slot.tzinfo is None else slot.astimezone(UTC)
        case _:
            return None


def follow_up_id(kind: str, lease: Lease, queue: str, task: str) -> str:
    """The id of the job that follows this outcome of a lease; the same for everybody who settles it."""
    return keyed_id(queue, f"{kind}:{lease.queue}:{lease.id}:{lease.fence}:{task}")


def digest(task: str, payload: bytes) -> str:
    """Equal for two jobs with the same task and payload."""
    return hashlib.blake2b(task.encode() + b"\0" + payload, digest_size=16).hexdigest()


def process_id(kind: str) -> str:
    """Unique per process start, and readable: a restarted worker must not be taken for its predecessor."""
    return f"{kind}-{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


def reaper_of(worker: str) -> str:
    """The name under which the reaper inside a worker takes leases over."""
    return f"reaper-{worker}"
