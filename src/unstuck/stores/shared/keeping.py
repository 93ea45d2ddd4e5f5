"""What every store decides alike about records: which are allowed, and whether one is as its caller wanted it."""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from unstuck.protocol.errors import LONGEST_DELAY, ConfigError, PayloadError
from unstuck.protocol.job import Json
from unstuck.protocol.json_text import encode
from unstuck.protocol.records import LARGEST, LONGEST_NAME, Kept, Record

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# NUL and half surrogate pairs cannot be kept by every store.
_NAME = re.compile(rf"[^\0\ud800-\udfff]{{1,{LONGEST_NAME}}}")
_NEWEST = 2**53  # versions stay below: JSON and Lua have no exact numbers beyond it
_decode = msgspec.json.Decoder().decode


class Change(NamedTuple):
    """A change of a record as statements get it: the value is JSON text, ``first`` the version if the record is new.

    ``first`` is random, so that a late call about a record that was deleted finds another version on its successor.
    """

    kind: str
    record: str
    value: str | None
    version: int
    first: int

    @property
    def params(self) -> dict[str, Any]:
        return self._asdict()


def change(kind: str, name: str, value: Any, version: int) -> Change:
    """Raises ``ConfigError`` or ``PayloadError`` for what cannot be kept."""
    check_kind(kind)
    check_name(kind, name)
    if not 0 <= version < _NEWEST:
        raise ConfigError(
            f"version of record {name!r:.60} is {version}: it must be the version that the record has, or 0 if there is none"
        )
    return Change(
        kind, name, None if value is None else _text(name, value), version, 1 + secrets.randbits(48)
    )


def _text(name: str, value: Any) -> str:
    text = encode(value, f"record {name!r:.60}")
    if len(text) > LARGEST:
        raise PayloadError(
            f"record {name!r:.60}: {len(text):,} bytes as JSON, at most {LARGEST:,} are allowed; "
            "store the data elsewhere and keep its address",
            size=len(text),
        )
    return text.decode()


def check_kind(kind: str) -> None:
    if not _KIND.fullmatch(kind):
        raise ConfigError(
            f"kind of record {kind!r:.60} is not allowed: it has up to 40 lower-case letters, digits, dashes and underscores, "
            "a letter first"
        )


def check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name {name!r:.60} of a record of kind {kind} is not allowed: it has 1 to {LONGEST_NAME} characters, none of them NUL "
            "or half a surrogate pair"
        )


def check_listing(kind: str, after: str) -> None:
    check_kind(kind)
    if after:
        check_name(kind, after)


def check_age(kind: str, seconds: float) -> None:
    check_kind(kind)
    if not 0 <= seconds <= LONGEST_DELAY:
        raise ConfigError(
            f"age of records of kind {kind} is {seconds!r:.60}: it must be 0 to {LONGEST_DELAY:.0f} seconds (366 days)"
        )


def answer(wanted: Change, found: tuple[int, str, datetime] | None) -> Kept:
    """The answer of ``keep``, from version, value and time of the record after the attempt.

    A change that was made before, by a call whose answer was lost, is applied: its value is there, in the next version.
    """
    if found is None:
        return Kept(wanted.value is None, None)
    version, text, updated_at = found
    applied = text == wanted.value and (wanted.version == 0 or version == wanted.version + 1)
    return Kept(applied, record(wanted.kind, wanted.record, version, text, updated_at))


def record(kind: str, name: str, version: int, text: str, updated_at: datetime) -> Record:
    value: Json
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    return Record(kind, name, value, version, updated_at)
