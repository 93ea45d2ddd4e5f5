"""The words of a question: what search by words looks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category, normalize

MOST_WORDS = 64
"""Of a question. The words of a whole page find everything."""

_STOP = """
a about after again all also am an and any anybody anyone anything are as at be because been before being both but by can could did do
does doing done each every for from further get gets give given gives go goes had has have having he her here hers him his how however i
if in into is it its itself just know let like ll many may me might mine more most much must my need no nor not of off often on once one
only or other our ours out over own please shall she should show so some somebody someone something still such tell than that the their
theirs them then there these they thing things this those to too under until up upon us use very want wants was we were what whatever when
where whether which while who whom whose why will with within without would yes you your yours d m re s t ve
"""
_ENDING = re.compile(r"(?<=\w{3})(ings?|ed|es|s|e|ly)$")
STOP_WORDS = frozenset(_STOP.split())


def words_of(question: str) -> list[str]:
    """Its different words without stop words; with them if it has no others.

    What is between spaces, punctuation and symbols is a word, so that no character of a question means anything to a graph.
    """
    found = list(dict.fromkeys(_split(question)))
    return ([word for word in found if word not in STOP_WORDS] or found)[:MOST_WORDS]


def best_observation(observations: Sequence[str], words: Sequence[str]) -> int | None:
    """The observation that has the most of the words, also in other forms; None if none has any."""
    stems = {_stem(word) for word in words}
    counts = [len(stems & {_stem(word) for word in _split(text)}) for text in observations]
    most = max(counts, default=0)
    return counts.index(most) if most else None


def _split(text: str) -> list[str]:
    return "".join(map(_word_or_space, normalize("NFC", text).lower())).split()


def _word_or_space(character: str) -> str:
    # Marks are parts of words: vowels of many scripts are.
    return character if character == "_" or category(character)[0] in "LNM" else " "


def _stem(word: str) -> str:
    """Roughly: words of which only the end differs have the same."""
    return _ENDING.sub("", word)
