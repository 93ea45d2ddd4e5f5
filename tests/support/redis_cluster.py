"""A private Redis Cluster: three masters with a replica each, and the trial of one that dies."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from support.redis import Redis, say
from support.servers import free_port
from support.waiting import until, until_async
from support.work import at_work
from unstuck import StoreUnavailable, Unstuck
from unstuck.testing import RedisHarness

# Long enough that none which is busy, or waits for its disk, is taken for dead.
SETTINGS = {"cluster-enabled": "yes", "cluster-node-timeout": "15000", "databases": "1"}
SOON = "1500"  # milliseconds, when one of them is
SLOTS = 16384


class Member(Redis):
    """The port at which the others speak to it stays the same when it is started again."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._among = free_port()
        super().__init__("redis", settings=settings)

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        return [*super()._argv(port, data_dir), "--cluster-port", str(self._among)]


class Cluster:
    """``with Cluster() as cluster``: ``master_of(key)`` is the server to kill."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.members = [self._stack.enter_context(Member(SETTINGS)) for _ in range(6)]
        places = [f"127.0.0.1:{member.port}" for member in self.members]
        create = ["redis-cli", "--cluster", "create", *places, "--cluster-replicas", "1", "--cluster-yes"]
        try:
            subprocess.run(create, check=True, capture_output=True, timeout=60)
            until(self.complete, 30, "the cluster to be complete")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.members[0].port}"

    def notice(self, within: str) -> None:
        """For how many milliseconds a member may be silent before the others take it for dead."""
        for member in self.members:
            if member.running:
                member.command("CONFIG", "SET", "cluster-node-timeout", within)

    def master_of(self, key: str) -> Redis:
        return self._member(self._master(key))

    def replicas_of(self, key: str) -> list[Redis]:
        master = self._master(key)[0]
        return [self._member(node) for node in self._nodes() if node[3] == master and "fail" not in node[2]]

    def complete(self) -> bool:
        """Whether every member knows three masters, each with a replica that could take over."""
        infos = [say(member.port, "CLUSTER", "INFO") for member in self.members]
        nodes = [say(member.port, "CLUSTER", "NODES") for member in self.members]
        links = [say(member.port, "INFO", "replication") for member in self.members]
        return (
            all("cluster_state:ok" in info for info in infos)
            and all(said.count("slave ") == 3 and "fail" not in said for said in nodes)
            and sum("master_link_status:up" in link for link in links) == 3
        )

    def _master(self, key: str) -> list[str]:
        slot = int(self._any().command("CLUSTER", "KEYSLOT", key)[1:])
        for node in self._nodes():
            spans = [tuple(map(int, part.split("-"))) for part in node[8:] if not part.startswith("[")]
            if "fail" not in node[2] and any(span[0] <= slot <= span[-1] for span in spans):
                return node
        raise AssertionError(f"no master has slot {slot}")

    def _member(self, node: list[str]) -> Redis:
        port = int(node[1].split("@")[0].rpartition(":")[2])
        [found] = [member for member in self.members if member.port == port]
        return found

    def _any(self) -> Redis:
        return next(member for member in self.members if member.running)

    def _nodes(self) -> list[list[str]]:
        """Of each node: its id, address, flags, the id of its master, four numbers, the slots it has."""
        return [line.split() for line in self._any().command("CLUSTER", "NODES").splitlines() if " " in line]


async def outlives_a_master(cluster: Cluster, harness: RedisHarness, queues: tuple[str, str]) -> None:
    """One worker serves both queues, and goes on when the master of the first dies."""
    async with Unstuck(harness.url) as app:

        @app.task(queue=queues[0])
        async def first(n: int) -> int:
            return n

        @app.task(queue=queues[1])
        async def second(n: int) -> int:
            return n

        async with at_work(app):
            assert await (await first.enqueue(1)).result(30) == 1
            assert await (await second.enqueue(2)).result(30) == 2
            dead = cluster.master_of(harness.base(queues[0]))
            await asyncio.to_thread(dead.kill9)
            cluster.notice(SOON)
            try:

                async def again() -> int:
                    try:  # longer than a worker waits between two tries, or one that sleeps would be taken for dead
                        return await (await first.enqueue(3)).result(30)
                    except StoreUnavailable:
                        return 0

                assert await until_async(again, 60, "a job to be done again") == 3
                cluster.notice(SETTINGS["cluster-node-timeout"])
                assert await (await second.enqueue(4)).result(30) == 4
            finally:
                await asyncio.to_thread(dead.start)
                await until_async(cluster.complete, 60, "the cluster to be complete again")
