"""The command in the process of a test, on a graph of its own with the mock provider."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from unstuck_memory import settings
from unstuck_memory.cli import main
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.graphs.sqlite import SqliteGraph

from support_memory.command import NAMES

ANN = {"name": "Ann", "entityType": "person", "observations": ["plays the cello", "lives in Lyon"]}
LYON = {"name": "Lyon", "entityType": "city", "observations": ["is at the Rhône"]}
LIVES = {"from": "Ann", "to": "Lyon", "relationType": "lives in"}


class Command:
    """Runs verbs in this process. Its settings are these alone, and nothing of them is left behind."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "unstuck-memory"
        self._environ: dict[str, str | None] = {name: None for name in os.environ if name.startswith(NAMES)}
        self._environ |= {
            "EMBED_JOB_RETENTION_DAYS": None,  # which the settings file sets
            "XDG_DATA_HOME": str(home),
            "UNSTUCK_MEMORY_EMBEDDINGS": "mock",
        }

    def __call__(self, *args: str, input: str | None = None, **environ: str) -> Result:
        found = CliRunner().invoke(main, args, input=input, env=self._environ | environ)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
        return found

    def good(self, *args: str, input: str | None = None, **environ: str) -> str:
        """What it prints; it must succeed."""
        found = self(*args, input=input, **environ)
        assert (found.exit_code, found.stderr) == (0, ""), found.output
        return found.stdout

    def data(self, *args: str, input: str | None = None, **environ: str) -> Any:
        """What it prints with --json."""
        return json.loads(self.good(*args, "--json", input=input, **environ))

    def bad(self, *args: str, code: int = 2, input: str | None = None, **environ: str) -> str:
        """The line on standard error; it must fail, and print nothing else."""
        found = self(*args, input=input, **environ)
        assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (code, "", 1), found.output
        assert found.stderr.startswith("unstuck-memory: ")
        return found.stderr

    def store(self, *records: dict[str, Any], project: str = "default") -> None:
        """Import entities and relations, whose objects differ in what they have."""
        lines = [
            json.dumps({"type": "entity" if "name" in record else "relation"} | record) for record in records
        ]
        self.good("import", "-", "--project", project, input="\n".join(lines))

    def embed(self, limit: int = 100) -> int:
        """Run jobs, and answer how many ran."""

        async def work() -> int:
            found = settings.load({"XDG_DATA_HOME": str(self.home)})
            assert isinstance(found.graph_at, Path)
            async with (
                SqliteGraph(found.graph_at) as graph,
                EmbeddingJobs(graph, MockProvider(), found.jobs_at) as jobs,
            ):
                return await jobs.process_jobs(limit)

        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("EMBED_JOB_RETENTION_DAYS", "14")  # no worker starts without it
            return asyncio.run(work())
