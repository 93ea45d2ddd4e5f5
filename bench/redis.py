"""The contestants on Redis: each has a database of the bench's own server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import Redis

from bench.contestant import OURS, ROOT, Contestant, our_worker, python
from bench.redis_server import RedisServer

UVLOOP = "uvloop"


@dataclass
class OnRedis(Contestant):
    """``done`` is a command that says how many jobs are finished, or with a minus in front how many are not."""

    server: RedisServer | None = None
    database: int = 0
    _open: Redis | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url(self.database)

    def fresh(self) -> None:
        assert self.server is not None
        self.server.empty()
        super().fresh()

    def finished(self, jobs: int) -> int:
        assert self.server is not None
        if self._open is None:
            self._open = self.server.client(self.database)
        if self.done.startswith("-"):
            return jobs - self._number(self.done[1:])
        return self._number(self.done)

    def _number(self, command: str) -> int:
        assert self._open is not None
        answer: Any = self._open.execute_command(*command.split())  # type: ignore[no-untyped-call]
        if isinstance(answer, list):  # a consumer group: what is with its consumers, and what is not yet
            return sum(int(group["pending"]) + int(group["lag"] or 0) for group in answer)
        return int(answer or 0)


def ours(server: RedisServer, concurrency: int) -> OnRedis:
    return OnRedis(
        name=OURS,
        program=python("bench.ours"),
        done="HGET bull:default:unstuck:counters completed",
        worker=our_worker(concurrency),
        server=server,
    )


def peers(server: RedisServer) -> list[OnRedis]:
    return [
        OnRedis(
            name="bullmq",
            program=("node", str(ROOT / "bench" / "peers" / "bullmq.cjs")),
            done="ZCARD bull:q:completed",
            settings=(("20",), ("50",), ("100",), ("300",)),  # concurrency
            idle=("20",),
            packages=("bullmq@>=6.7", "ioredis@5"),
            server=server,
            database=1,
        ),
        OnRedis(
            name="dramatiq",
            program=python("bench.peers.dramatiq", "dramatiq"),
            done="-HLEN dramatiq:default.msgs",
            settings=(("8",), ("32",), ("64",)),  # threads
            idle=("8",),
            packages=("dramatiq[redis]>=2.1",),
            server=server,
            database=2,
        ),
        OnRedis(
            name="taskiq",
            program=python("bench.peers.taskiq", "taskiq"),
            done="-XINFO GROUPS taskiq",
            settings=(("100",), ("100", UVLOOP), ("500", UVLOOP)),  # jobs at the same time
            idle=("100",),
            packages=("taskiq>=0.12", "taskiq-redis>=1.2", UVLOOP),
            server=server,
            database=3,
        ),
    ]
