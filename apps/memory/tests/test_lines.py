"""Lines keep their numbers whatever stands between them, and a line that is too long does not fill the memory."""

from pathlib import Path

import pytest
from unstuck_memory import lines


def test_lines_are_counted_with_the_blank_ones_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n  \ntwo\n\nthree")
    assert list(lines.numbered(path)) == [(1, b"one\r\n"), (4, b"two\n"), (6, b"three")]


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 8)
    path = tmp_path / "file"
    path.write_bytes(b"1234567\n" + b"x" * 100 + b"\nlast\n" + b"y" * 9)
    assert list(lines.numbered(path)) == [(1, b"1234567\n"), (2, None), (3, b"last\n"), (4, None)]
