"""A memory needs no network: its command, its worker and its search do all of it where there is none."""

import os
import subprocess
import sys
from pathlib import Path

from support_memory.command import COMMAND, NAMES

APART = ["unshare", "--net"]  # a namespace without any network, not even this machine's own
WORKER = [sys.executable, "-m", "unstuck", "worker", "unstuck_memory.worker:app", "--burst"]
LINE = '{"type":"entity","name":"%s","entityType":"person","observations":["%s"]}\n'


def test_from_the_first_start_to_a_search_by_meaning_nothing_needs_a_network(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    env["XDG_DATA_HOME"] = str(tmp_path)

    def apart(*argv: str) -> str:
        done = subprocess.run(
            [*APART, *argv], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    lines = [LINE % ("Ann", "plays the cello"), LINE % ("Bob", "prefers tea to coffee")]
    (tmp_path / "team.jsonl").write_text("".join(lines))
    memory = str(COMMAND)
    apart(memory, "init")
    assert "2 records imported" in apart(memory, "import", "team.jsonl")
    apart(*WORKER)
    assert "2 of 2 entities have embeddings (100%)" in apart(memory, "status")
    first, second, *_ = apart(memory, "search", "Which instrument is played?").splitlines()
    assert "Ann" in second, first
    assert apart(memory, "export", "memory.jsonl") == "4 lines written to memory.jsonl\n"
