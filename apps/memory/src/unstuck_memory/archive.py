"""An archive: every version of a project's entities and relations as JSON lines.

The first line has the format and its version, the last one the number of records between them: an archive that was cut is noticed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from unstuck_memory import checks
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.lines import numbered

FORMAT = "unstuck-memory"
VERSION = 1
RECORDS, BYTES = 500, 4 * 1024 * 1024  # of a batch, which is one transaction


class Header(Struct, frozen=True):
    """The first line."""

    format: str
    version: int


class End(Struct, frozen=True, tag="end", tag_field="record"):
    """The last line."""

    records: int


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[EntityRecord | RelationRecord | End] = msgspec.json.Decoder(
    EntityRecord | RelationRecord | End
)


async def lines(records: AsyncIterator[ArchiveRecord]) -> AsyncIterator[bytes]:
    """The lines of an archive, each with its end."""
    yield _line(Header(FORMAT, VERSION))
    count = 0
    async for record in records:
        yield _line(record)
        count += 1
    yield _line(End(count))


def is_archive(path: Path) -> bool:
    """Whether the first line names this format, of whatever version; if not, it is another program's file."""
    for _, line in numbered(path):
        try:
            return line is not None and msgspec.json.decode(line, type=Header).format == FORMAT
        except msgspec.DecodeError:
            return False
    return False


def check(path: Path) -> None:
    """Read the whole archive and raise ``InvalidInput`` for the first line that could not be restored.

    Only the entities' uids are held in memory.
    """
    uids: set[str] = set()
    for number, record in _records(path):
        try:
            if isinstance(record, EntityRecord):
                _check_entity(record)
                uids.add(record.entity.uid)
            else:
                _check_relation(record, uids)
        except InvalidInput as error:
            raise _refusal(path, number, str(error)) from None


def batches(path: Path) -> Iterator[list[ArchiveRecord]]:
    """The records of an archive that was checked, as many at a time as one transaction writes."""
    batch: list[ArchiveRecord] = []
    size = 0
    for _, record in _records(path):
        batch.append(record)
        size += _size(record)
        if len(batch) >= RECORDS or size >= BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _records(path: Path) -> Iterator[tuple[int, ArchiveRecord]]:
    """The records with the numbers of their lines; raises if the archive is of a newer version, damaged or cut."""
    count = number = 0
    end: End | None = None
    for number, line in numbered(path):
        if number == 1:
            _check_header(path, line)
            continue
        if end is not None:
            raise _refusal(path, number, "it stands behind the end of the archive")
        record = _decoded(path, number, line)
        if isinstance(record, End):
            end = record
        else:
            count += 1
            yield number, record
    if end is None or end.records != count:
        raise _refusal(path, number + 1, f"{count} records were read, and the archive is cut or was changed")


def _check_header(path: Path, line: bytes | None) -> None:
    try:
        header = msgspec.json.decode(line or b"", type=Header)
    except msgspec.DecodeError:
        header = Header("", 0)
    if header.format != FORMAT or header.version < 1:
        raise _refusal(path, 1, f"it must name the format {FORMAT!r} and its version")
    if header.version > VERSION:
        raise InvalidInput(
            f"{path.name} is an archive of version {header.version}: version {VERSION} can be read; "
            "import it with a newer release"
        )


def _decoded(path: Path, number: int, line: bytes | None) -> EntityRecord | RelationRecord | End:
    try:
        return _decoder.decode(line or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(path, number, str(error).replace("\n", " ")) from None


def _check_entity(record: EntityRecord) -> None:
    entity = record.entity
    _same("entity.uid", entity.uid, checks.name("entity.uid", entity.uid))
    _same("entity.name", entity.name, checks.name("entity.name", entity.name))
    _same("entity.entityType", entity.entity_type, checks.name("entity.entityType", entity.entity_type))
    # Their number is not checked: two processes may have added the last ones at the same time.
    for at, observation in enumerate(entity.observations):
        checks.observation(f"entity.observations[{at}]", observation)
    _check_version("entity.", entity)


def _check_relation(record: RelationRecord, uids: set[str]) -> None:
    _same("uid", record.uid, checks.name("uid", record.uid))
    _same("relation_type", record.relation_type, checks.name("relation_type", record.relation_type))
    checks.share("strength", record.strength)
    checks.share("confidence", record.confidence)
    if record.metadata is not None:
        try:
            metadata = msgspec.json.decode(record.metadata)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise InvalidInput("metadata is not JSON: it must be a JSON object; correct it") from None
        checks.metadata("metadata", metadata if metadata is not None else [])
    for end, uid in (("from_uid", record.from_uid), ("to_uid", record.to_uid)):
        if uid not in uids:
            raise InvalidInput(
                f"{end} is not the uid of an entity before it: relations stand behind their ends; use a complete archive"
            )
    _check_version("", record)


def _check_version(where: str, record: Any) -> None:
    """What versions of entities and relations have in common."""
    checks.whole(f"{where}version", record.version, 1, 2**53, "correct it")
    for field in ("created_at", "updated_at", "valid_from"):
        checks.whole(f"{where}{field}", getattr(record, field), 0, checks.LATEST, "correct it")
    if record.valid_to is not None:
        checks.whole(f"{where}valid_to", record.valid_to, record.valid_from, checks.LATEST, "correct it")
    _same(f"{where}changed_by", record.changed_by, checks.changed_by(f"{where}changed_by", record.changed_by))


def _same(what: str, value: str | None, checked: str | None) -> None:
    if value != checked:
        raise InvalidInput(
            f"{what} is not as it is kept: composed Unicode (NFC) without spaces at its ends; correct it"
        )


def _refusal(path: Path, number: int, problem: str) -> InvalidInput:
    return InvalidInput(
        f"{path.name} line {number}: {problem}; nothing was imported, use an undamaged archive"
    )


def _size(record: ArchiveRecord) -> int:
    if isinstance(record, EntityRecord):
        return sum(map(len, record.entity.observations))
    return len(record.metadata or "")


def _line(record: Struct) -> bytes:
    return _encoder.encode(record) + b"\n"
