"""A private Redis Cluster: three masters with a replica each."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from support.redis import Redis, say
from support.servers import free_port
from support.waiting import until

SETTINGS = {"cluster-enabled": "yes", "cluster-node-timeout": "1500", "databases": "1"}
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
            until(self._complete, 30, "the cluster to be complete")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.members[0].port}"

    def master_of(self, key: str) -> Redis:
        slot = int(self._any().command("CLUSTER", "KEYSLOT", key)[1:])
        for line in self._nodes():
            (
                _,
                place,
                flags,
                *_,
            ) = line.split()
            ranges = [part for part in line.split()[8:] if not part.startswith("[")]
            spans = [tuple(map(int, part.split("-"))) for part in ranges]
            if (
                "master" in flags
                and "fail" not in flags
                and any(span[0] <= slot <= span[-1] for span in spans)
            ):
                port = int(place.split("@")[0].rpartition(":")[2])
                [found] = [member for member in self.members if member.port == port]
                return found
        raise AssertionError(f"no master has slot {slot}")

    def _any(self) -> Redis:
        return next(member for member in self.members if member.running)

    def _nodes(self) -> list[str]:
        return [line for line in self._any().command("CLUSTER", "NODES").splitlines() if " " in line]

    def _complete(self) -> bool:
        infos = [say(member.port, "CLUSTER", "INFO") for member in self.members]
        nodes = [say(member.port, "CLUSTER", "NODES") for member in self.members]
        return all("cluster_state:ok" in info for info in infos) and all(
            said.count("slave ") == 3 for said in nodes
        )
