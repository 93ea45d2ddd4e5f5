"""The verbs export and import."""

import json
import os
from pathlib import Path

import pytest
from support_memory.verbs import ANN, LIVES, LYON, Command


def test_what_was_exported_is_imported_elsewhere_with_its_history(lived_in: Command, tmp_path: Path) -> None:
    lived_in.store(ANN | {"observations": ["likes tea"]})
    file = tmp_path / "memory.jsonl"
    assert lived_in.good("export", str(file)) == f"6 lines written to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert lived_in.good("export", "-").encode() == file.read_bytes()
    elsewhere = Command(tmp_path / "elsewhere")
    assert elsewhere.good("import", str(file)) == "4 records imported into project default\n"
    assert (
        elsewhere.good("import", "-", input=file.read_text()) == "0 records imported into project default\n"
    )
    for args in (["show", "Ann", "--history"], ["show", "Lyon"]):
        assert elsewhere.data(*args) == lived_in.data(*args)
    assert elsewhere.embed() == 2


def test_a_file_of_the_reference_server_is_recognised_by_its_content_and_written_again(
    lived_in: Command, tmp_path: Path
) -> None:
    text = lived_in.good("export", "-", "--form", "reference")
    assert [json.loads(row) for row in text.splitlines()] == [
        {"type": "entity"} | ANN, {"type": "entity"} | LYON, {"type": "relation"} | LIVES,
    ]  # fmt: skip
    other = Command(tmp_path / "other")
    assert other.data("import", "-", "--project", "mine", input=text)["records"] == 3
    assert other.good("export", "-", "--form", "reference", "--project", "mine") == text
    assert "project 'yours' is unknown" in other.bad("export", "-", "--project", "yours")


def test_bad_lines_are_named_by_their_numbers_and_the_others_are_imported(command: Command) -> None:
    rows = [
        json.dumps({"type": "entity"} | ANN),
        "not json",
        json.dumps({"type": "entity"} | LYON | {"observations": 7}),
        json.dumps({"type": "relation", "from": "Ann", "to": "Nobody", "relationType": "knows"}),
        json.dumps({"type": "\x1b[31m"}),
    ]
    answer = command("import", "-", input="\n".join(rows))
    assert (answer.exit_code, answer.stderr) == (1, "")
    head, *bad, last = answer.stdout.splitlines()
    assert head == "1 record imported into project default"
    assert [row.split(":")[0] for row in bad] == ["line 2", "line 3", "line 4", "line 5"]
    assert last == "4 lines were left out: correct and import again"
    assert all(row.isprintable() for row in bad)
    answer = command("import", "-", "--json", input="\n".join(rows))
    assert (answer.exit_code, json.loads(answer.stdout)["badLines"]) == (1, 4)


def test_an_archive_that_was_cut_is_refused_as_a_whole(lived_in: Command, tmp_path: Path) -> None:
    rows = lived_in.good("export", "-").splitlines(keepends=True)
    other = Command(tmp_path / "other")
    assert "is cut or was changed" in other.bad("import", "-", input="".join(rows[:-1]))
    newer = rows[0].replace('"version":1', '"version":2') + "".join(rows[1:])
    assert "import it with a newer release" in other.bad("import", "-", input=newer)
    assert other.data("search", "Ann", "--mode", "keyword")["hits"] == []


def test_export_replaces_no_device_and_leaves_nothing_behind_when_it_fails(
    lived_in: Command, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")  # which stands for /dev/null: root would replace that
    before = sorted(tmp_path.iterdir())
    wrong = "pipe is not a file: name a file, or write - for standard output"
    assert wrong in lived_in.bad("export", str(tmp_path / "pipe"))
    assert "is not a file" in lived_in.bad("export", str(tmp_path))
    assert "there is no folder" in lived_in.bad("export", str(tmp_path / "none" / "file"))
    assert "project 'other' is unknown" in lived_in.bad(
        "export", str(tmp_path / "file"), "--project", "other"
    )
    assert (sorted(tmp_path.iterdir()), (tmp_path / "pipe").is_fifo()) == (before, True)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["import", "none.jsonl"], "none.jsonl does not exist: name a file, or write - for standard input"),
        (["import", "/"], "/ is not a file"),
        (["import", "-", "--project", ""], "project is empty"),
        (["export", "-", "--form", "xml"], "'xml' is not one of"),
        (["export", "-"], "there is no graph at"),
        (["export"], "Missing argument 'FILE'"),
    ],
)
def test_wrong_input_is_one_line(command: Command, args: list[str], why: str) -> None:
    assert why in command.bad(*args)
