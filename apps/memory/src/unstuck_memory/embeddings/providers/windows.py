"""How much text a model takes at a time: its window, and what becomes of longer texts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

CHARACTERS_A_TOKEN = 16
"""Text beyond so many characters a token of the window is not looked at when it is cut: words are shorter."""
_BREAKS = (("\n", ". ", "! ", "? ", "。"), ("; ", ", ", ": "), (" ",))


class Window:
    """A window of ``limit`` tokens. ``ends`` splits a text into tokens: for each, the index behind its last character.

    No token is shorter than a byte, so a short text fits without being split.
    """

    def __init__(self, limit: int, ends: Callable[[str], Sequence[int]]) -> None:
        self.limit = limit
        self._ends = ends

    def cut(self, text: str) -> str:
        if self._fits(text):
            return text
        text = text[: CHARACTERS_A_TOKEN * self.limit]
        ends = self._ends(text)
        return text if len(ends) <= self.limit else text[: _reach(ends, 0, self.limit)]

    def pieces(self, lead: str, text: str) -> list[str]:
        """Pieces end at the end of a sentence where there is one in their second half, or else between words."""
        if self._fits(lead + text):
            return [lead + text]
        lead = self._short(lead)
        ends = self._ends(text)
        room = self.limit - len(self._ends(lead)) - 1  # the first token behind the lead may be another one
        parts, start, token = [], 0, 0
        while len(ends) - token > room:
            end = _break(text, start, _reach(ends, token, room))
            parts.append(text[start:end].strip())
            start = end
            token = bisect_right(ends, start, lo=token)
        parts.append(text[start:].strip())
        return [lead + part for part in parts if part]

    def _short(self, lead: str) -> str:
        """The lead, if it leaves at least half of the window to the text."""
        ends = self._ends(lead)
        half = self.limit // 2
        return lead if len(ends) <= half else lead[: _reach(ends, 0, half - 1)] + lead[-1:]

    def _fits(self, text: str) -> bool:
        return len(text) < self.limit and len(text.encode()) < self.limit


def bytes_window(limit: int) -> Window:
    """A window whose tokens are not known: each byte of UTF-8 counts as one, which is the most that they can be."""
    return Window(limit, _byte_ends)


def _byte_ends(text: str) -> list[int]:
    return [index for index, character in enumerate(text, 1) for _ in character.encode()]


def _reach(ends: Sequence[int], token: int, count: int) -> int:
    """Where the text ends that so many tokens from this one make up, without a part of a character."""
    behind = token + count
    if ends[behind] > ends[behind - 1]:
        return ends[behind - 1]
    before = bisect_left(ends, ends[behind], lo=token) - 1
    return ends[max(before, token)]


def _break(text: str, start: int, end: int) -> int:
    """Where a piece that could reach ``end`` ends best."""
    least = start + (end - start) // 2
    for marks in _BREAKS:
        best = max(text.rfind(mark, least, end) + len(mark) for mark in marks)
        if best > least:
            return min(best, end)
    return end
