"""Worker processes on a test's store, as an operator starts them, and what became of their jobs."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from support.folders import IMPORTABLE
from support.kin import PROC, alive, processes
from support.ledger import Ledger
from support.processes import Child
from support.waiting import until_async
from unstuck import Filter, Status
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Job, NewJob, Ref
from unstuck.protocol.store import Store

COMMAND = (sys.executable, "-m", "unstuck")
OVER = (Status.COMPLETED, Status.FAILED)


class Place(Protocol):
    """Where the jobs are, as every harness knows it."""

    url: str
    store: Store


class Workers:
    """``with Workers(harness, folder) as workers``: none of the processes that it starts outlives it."""

    def __init__(self, harness: Place, folder: Path) -> None:
        self.store = harness.store
        self.ledger = Ledger(folder / "ledger")
        self.gate = str(folder / "gate")
        self._folder = folder
        paths = [IMPORTABLE, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._env = {"UNSTUCK_STORE": harness.url, "PYTHONPATH": os.pathsep.join(paths), **self.ledger.env()}
        self._children = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._children.close()

    def start(self, *options: str, app: str = "family_app:app", before: Sequence[str] = ()) -> Child:
        """``unstuck worker`` with these options, as an argument of the command ``before`` if there is one."""
        self._count += 1
        argv = [*before, *COMMAND, "worker", app, "--concurrency", "5", *options]
        child = Child(argv, self._folder / f"worker-{self._count}.log", env=self._env, cwd=self._folder)
        return self._children.enter_context(child)

    async def enqueue(self, task: str, count: int = 1, *, queue: str = "long", **facts: Any) -> list[Ref]:
        """Jobs of one task; what is none of a job's own fields is an argument for the handler."""
        own = {name: facts.pop(name) for name in list(facts) if name in NewJob.__struct_fields__}
        jobs = [
            NewJob(queue=queue, task=task, id=new_id(), payload=facts, backoff=(0.1,), **own)
            for _ in range(count)
        ]
        return [answer.ref for answer in await self.store.enqueue(jobs)]

    def open(self, attempt: int) -> None:
        """Let the jobs go on that wait at ``gate`` in this of their attempts, now or later."""
        Path(f"{self.gate}{attempt}").touch()

    async def jobs(self) -> list[Job]:
        return (await self.store.find(Filter(), 1000)).jobs

    async def job(self, ref: Ref) -> Job:
        [found] = [job for job in await self.jobs() if job.ref == ref]
        return found

    async def finished(self, timeout: float, child: Child | None = None) -> list[Job]:
        """All jobs, once none of them is pending or processing."""

        async def done() -> list[Job]:
            jobs = await self.jobs()
            return jobs if all(job.status in OVER for job in jobs) else []

        return await until_async(done, timeout, "all jobs to finish", child.log if child else None)

    async def over(self, ref: Ref, timeout: float, child: Child) -> Job:
        """The job, once it is completed or failed."""

        async def done() -> Job | None:
            job = await self.job(ref)
            return job if job.status in OVER else None

        return await until_async(done, timeout, f"the end of {ref}", child.log)

    async def begun(self, ref: Ref, child: Child, times: int = 1) -> None:
        """Until a handler has told the ledger that it runs this job, that many times."""
        await until_async(
            lambda: self.ledger.started(ref.id) >= times, 60, f"start {times} of the job", child.log
        )

    async def events(self, ref: Ref) -> list[str]:
        return [event.type for event in await self.store.events(job=ref)]

    def ended(self) -> int:
        """How many jobs were run to an end."""
        return len({record.job for record in self.ledger.read() if record.kind == "end"})

    def noted(self, kind: str) -> list[int]:
        """The pids that handlers told of under this word."""
        return [pid for record in self.ledger.read() if record.kind == kind for pid in _pids(record.facts)]


def worker_of(child: Child) -> int:
    """The worker process under a supervisor that has told of itself in the log."""
    line = child.until_line(r"worker worker-\S+ takes", 60)
    return int(re.findall(r"worker-\S+?-(\d+)-[0-9a-f]{8} takes", line)[-1])


def fork_server_of(child: Child) -> int:
    """The process that forks the isolated jobs of a worker."""
    named = {pid for pid in child.family() if b"unstuck.worker.isolation.forkserver" in _argv(pid)}
    [found] = [pid for pid in named if (entry := processes().get(pid)) and entry.parent not in named]
    return found


def named(child: Child, command: str) -> set[int]:
    """Those of a family that run this command."""
    return {pid for pid in child.family() if _argv(pid).startswith(command.encode() + b"\0")}


async def nobody(pids: Sequence[int] | set[int], timeout: float = 20.0) -> None:
    """Until none of these processes lives."""
    assert pids, "nobody was named: the test proves nothing"
    await until_async(lambda: not any(map(alive, pids)), timeout, f"the end of {sorted(pids)}")


def _argv(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def _pids(facts: Any) -> list[int]:
    return list(facts["pids"])
