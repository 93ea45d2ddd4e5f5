"""The command as a process: first start, locks, interruptions, readers that leave, and the terminal."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from support_memory.command import COMMAND, run
from support_memory.embedding_server import EmbeddingServer, Refusal
from support_memory.verbs import ANN, Command
from unstuck_memory.graphs.sqlite import connection

LINE = json.dumps({"type": "entity"} | ANN) + "\n"


WAITING = """
from unstuck_memory.cli import main
from unstuck_memory.graphs.sqlite import connection

class Told(connection._Patience):
    def __call__(self, tries):
        if tries == 0:
            print("waits for a lock", flush=True)
        return super().__call__(tries)

connection._Patience = Told
main()
"""


def started(command: Command, *args: str | Path) -> subprocess.Popen[str]:
    env = os.environ | {
        "XDG_DATA_HOME": str(command.home), "UNSTUCK_MEMORY_EMBEDDINGS": "mock", "TMPDIR": str(command.home),
    }  # fmt: skip
    return subprocess.Popen(
        args, env=env, cwd=command.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip


def test_the_first_start_needs_no_settings_and_wrong_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "first.jsonl").write_text(LINE)
    made = run(tmp_path, "import", "first.jsonl")
    assert (made.returncode, made.stdout, made.stderr) == (0, "1 record imported into project default\n", "")
    settings = tmp_path / "unstuck-memory" / "settings.toml"
    assert "EMBED_JOB_RETENTION_DAYS = 14" in settings.read_text()
    assert all(file.stat().st_mode & 0o077 == 0 for file in settings.parent.iterdir())
    bad = run(tmp_path, "show", "Bob")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def test_an_interrupted_verb_ends_at_once_and_cleans_up(lived_in: Command) -> None:
    before = sorted(lived_in.home.iterdir())
    child = started(lived_in, sys.executable, "-c", WAITING, "import", "-")
    assert child.stdin is not None
    assert child.stdout is not None
    with closing(apsw.Connection(str(lived_in.folder / "graph.db"))) as file:
        file.execute("BEGIN IMMEDIATE")  # for longer than anybody waits for the process
        child.stdin.write(LINE.replace("Ann", "Bob"))
        child.stdin.close()
        child.stdin = None
        assert child.stdout.readline() == "waits for a lock\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=40) == ("", "")
    assert (child.returncode, sorted(lived_in.home.iterdir())) == (1, before)
    assert "has no entity 'Bob'" in lived_in.bad("show", "Bob")


def test_a_graph_that_stays_locked_is_reported(lived_in: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.2)
    with closing(apsw.Connection(str(lived_in.folder / "graph.db"))) as file:
        file.execute("BEGIN IMMEDIATE")
        assert "end that process, or try again later" in lived_in.bad("merge", "Ann", "Lyon", code=1)


def test_a_reader_that_leaves_is_no_trouble(lived_in: Command) -> None:
    lived_in.store(*[ANN | {"name": f"Ann {number}", "observations": ["x" * 9000]} for number in range(50)])
    child = started(lived_in, COMMAND, "export", "-")
    assert child.stdout is not None
    assert child.stdout.readline().startswith('{"format":"unstuck-memory"')
    child.stdout.close()
    child.stdout = None
    assert child.communicate(timeout=60)[1] == ""


def test_what_goes_wrong_is_printed_once_and_not_logged(lived_in: Command, server: EmbeddingServer) -> None:
    lived_in.embed()
    server.always(Refusal(500, message="no vectors today"))
    hosted = {"UNSTUCK_MEMORY_EMBEDDINGS": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "key"}
    found = run(lived_in.home, "search", "cello", **hosted)
    assert (found.returncode, found.stderr) == (0, "")
    assert "not by hybrid search: the provider gave no vector for the query in time" in found.stdout


def test_help_of_the_command_imports_no_verb_and_that_of_each_verb_fits() -> None:
    code = "import sys; from unstuck_memory.cli import main\ntry: main(['--help'])\nfinally: print(sorted({'numpy', 'unstuck', 'mcp'} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=os.environ | {"COLUMNS": "80"}
    )  # fmt: skip
    *text, imported = shown.stdout.splitlines()
    assert imported == "[]"
    assert all(len(row) <= 80 for row in text)
