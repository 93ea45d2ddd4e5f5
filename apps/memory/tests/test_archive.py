"""An archive is read back as it was written, or refused before anything of it is used."""

import json
import stat
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from unstuck_memory import archive, lines
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.values import Entity

pytestmark = pytest.mark.anyio

AT = 1_700_000_000_000


def person(uid: str, name: str, *observations: str, version: int = 1, **fields: Any) -> EntityRecord:
    times = {"created_at": AT, "updated_at": AT + version, "valid_from": AT + version} | fields
    return EntityRecord(
        Entity(uid=uid, name=name, entity_type="person", observations=observations, version=version, **times)
    )


def knows(uid: str, from_uid: str, to_uid: str, **fields: Any) -> RelationRecord:
    return RelationRecord(**{
        "uid": uid, "from_uid": from_uid, "to_uid": to_uid, "relation_type": "knows", "strength": None,
        "confidence": 0.5, "metadata": '{"a":[1,"x"]}', "version": 1, "created_at": AT, "updated_at": AT,
        "valid_from": AT, "valid_to": None, "changed_by": None, **fields,
    })  # fmt: skip


ANN, BOB = person("1", "Ann", "tall"), person("2", "Bob")
RECORDS: Sequence[ArchiveRecord] = (
    person("1", "Ann", valid_to=AT + 2),
    person("1", "Ann", "tall", "línea\n\u2028 \U0001f600 \x01", version=2, changed_by="me"),
    BOB,
    knows("3", "1", "2"),
    knows("4", "1", "1", confidence=None, metadata=None, strength=1.0, valid_to=AT, version=7),
)


async def stream(records: Sequence[ArchiveRecord]) -> AsyncIterator[ArchiveRecord]:
    for record in records:
        yield record


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    await lines.write(tmp_path / "graph.jsonl", archive.lines(stream(RECORDS)))
    return tmp_path / "graph.jsonl"


async def test_what_was_written_is_read_back_equal(path: Path) -> None:
    archive.check(path)

    assert [record for batch in archive.batches(path) for record in batch] == list(RECORDS)
    assert archive.is_archive(path)


async def test_the_file_names_its_format_and_counts_its_records(path: Path) -> None:
    first, *records, last = [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    assert first == {"format": "unstuck-memory", "version": 1}
    assert [record["record"] for record in records] == ["entity"] * 3 + ["relation"] * 2
    assert last == {"record": "end", "records": 5}


async def test_only_the_owner_can_read_the_file_and_nothing_is_left_beside_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


async def test_an_archive_that_cannot_be_completed_leaves_the_old_one_as_it_was(path: Path) -> None:
    before = path.read_bytes()

    async def broken() -> AsyncIterator[ArchiveRecord]:
        yield ANN
        raise OSError("the graph is gone")

    with pytest.raises(OSError, match="the graph is gone"):
        await lines.write(path, archive.lines(broken()))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_batches_are_bounded_by_records_and_by_what_they_hold(tmp_path: Path) -> None:
    small = [person(str(number), f"name {number}") for number in range(archive.RECORDS + 1)]
    large = [person(f"x{number}", f"large {number}", "x" * (archive.BYTES // 2)) for number in range(3)]
    await lines.write(tmp_path / "many", archive.lines(stream([*small, *large])))

    batches = list(archive.batches(tmp_path / "many"))
    assert [len(batch) for batch in batches] == [archive.RECORDS, 3, 1]


async def test_an_archive_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    async def many() -> AsyncIterator[ArchiveRecord]:
        for number in range(640):
            yield person(
                str(number), f"name {number}", *(f"{number} {at} ".ljust(10_000, "x") for at in range(10))
            )

    path = tmp_path / "large"
    tracemalloc.start()
    try:
        await lines.write(path, archive.lines(many()))
        archive.check(path)
        for batch in archive.batches(path):
            assert batch
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 60_000_000
    assert peak < 4 * archive.BYTES


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as refused:
        archive.check(path)
    line = str(refused.value)
    assert line.isprintable()
    return line


async def test_an_archive_of_a_newer_version_is_refused(path: Path) -> None:
    path.write_text(path.read_text().replace('"version":1}', '"version":2}', 1))

    assert archive.is_archive(path)
    assert refusal(path) == (
        "graph.jsonl is an archive of version 2: version 1 can be read; import it with a newer release"
    )


@pytest.mark.parametrize(
    "first", ['{"format":"other","version":1}', '{"format":"unstuck-memory","version":0}', "x"]
)
async def test_an_archive_begins_with_its_format_and_version(first: str, path: Path) -> None:
    path.write_text(first + path.read_text()[path.read_text().index("\n") :])

    assert refusal(path).startswith(
        "graph.jsonl line 1: it must name the format 'unstuck-memory' and its version; "
    )


async def test_an_archive_that_was_cut_is_refused_wherever_it_was_cut(path: Path) -> None:
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for at in (ends[0], ends[2], ends[-2], ends[-2] + 5, ends[3] - 10):
        path.write_bytes(whole[:at])
        assert "; nothing was imported, use an undamaged archive" in refusal(path)

    path.write_bytes(whole[: ends[1]] + whole[ends[2] :])
    assert refusal(path).startswith(
        "graph.jsonl line 7: 4 records were read, and the archive is cut or was changed"
    )
    path.write_bytes(whole + whole[ends[0] :])
    assert refusal(path).startswith("graph.jsonl line 8: it stands behind the end of the archive")


BAD: list[tuple[ArchiveRecord, str]] = [
    (person("", "Ann"), "entity.uid is empty"),
    (person("1", ""), "entity.name is empty"),
    (person("1", "a" * 201), "entity.name has 201 characters"),
    (person("1", " Ann"), "entity.name is not as it is kept"),
    (person("1", "Zoe\u0308"), "entity.name is not as it is kept"),
    (person("1", "Ann", "x" * 10_001), "entity.observations[0] has 10,001 characters"),
    (person("1", "Ann", "a\0b"), "entity.observations[0] has the NUL character at position 1"),
    (person("1", "Ann", version=0), "entity.version is 0: it must be a whole number from 1 to "),
    (person("1", "Ann", valid_to=AT), "entity.valid_to is 1700000000000: it must be a whole number from "),
    (person("1", "Ann", created_at=-1), "entity.created_at is -1"),
    (person("1", "Ann", changed_by=" me"), "entity.changed_by is not as it is kept"),
    (knows("3", "1", "9"), "to_uid is not the uid of an entity before it"),
    (knows("3", "9", "1"), "from_uid is not the uid of an entity before it"),
    (knows("3", "1", "1", strength=1.1), "strength is 1.1: it must be a number from 0 to 1"),
    (knows("3", "1", "1", confidence=-0.1), "confidence is -0.1: it must be a number from 0 to 1"),
    (knows("3", "1", "1", metadata="[1]"), "metadata is of type list: it must be a JSON object"),
    (knows("3", "1", "1", metadata="null"), "metadata is of type list: it must be a JSON object"),
    (knows("3", "1", "1", metadata="{"), "metadata is not JSON"),
    (knows("3", "1", "1", relation_type=""), "relation_type is empty"),
]


@pytest.mark.parametrize(("bad", "problem"), BAD)
async def test_a_record_that_no_graph_would_have_is_refused_with_its_line(
    bad: ArchiveRecord, problem: str, tmp_path: Path
) -> None:
    await lines.write(tmp_path / "bad", archive.lines(stream([ANN, bad])))

    assert refusal(tmp_path / "bad").startswith(f"bad line 3: {problem}")


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe", b"[" * 100_000, b"{}", b"[]", b'{"record":"other"}', b'{"record":"entity","entity":{"uid":1}}',
        msgspec.json.encode(ANN).replace(b'"version":1', b'"version":1.5'),
        msgspec.json.encode(ANN).replace(b"tall", b"\\ud800"),
        msgspec.json.encode(knows("3", "1", "1")).replace(b"0.5", b"NaN"),
    ],
)  # fmt: skip
async def test_a_line_that_is_no_record_is_refused_with_its_number(line: bytes, path: Path) -> None:
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, line, b"\n", *others]))

    assert refusal(path).startswith("graph.jsonl line 2: ")


def test_other_files_are_not_taken_for_archives(tmp_path: Path) -> None:
    for text in ("", "\n \n", "x", "[1]", '{"type":"entity"}', '{"format":"other","version":1}'):
        (tmp_path / "file").write_text(text)
        assert not archive.is_archive(tmp_path / "file")
