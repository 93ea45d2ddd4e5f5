"""Long texts are cut and split so that every part fits, and nothing between the parts is lost."""

import re
from collections.abc import Callable

import pytest
from unstuck_memory.embeddings.providers.windows import Window, bytes_window


def word_ends(text: str) -> list[int]:
    return [found.end() for found in re.finditer(r"\w|[^\w\s]", text)]  # a token for each letter and mark


WINDOWS: dict[str, Callable[[int], Window]] = {
    "bytes": bytes_window,
    "tokens": lambda limit: Window(limit, word_ends),
}


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest) -> Callable[[int], Window]:
    return WINDOWS[request.param]


SENTENCES = " ".join(f"The {number}th sentence is here." for number in range(40))
JAPANESE = "東京は日本の首都です。" * 20
TEXTS = [SENTENCES, "x" * 999, JAPANESE, "🚀" * 100, "one\ntwo\n" * 90, "word " * 200]


def test_a_short_text_is_one_piece_as_it_is(window: Callable[[int], Window]) -> None:
    assert window(50).pieces("Ann: ", " likes\n tea ") == ["Ann:  likes\n tea "]
    assert window(50).cut(" likes\n tea ") == " likes\n tea "


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [16, 50, 101])
def test_every_piece_fits_and_together_they_are_the_text(
    window: Callable[[int], Window], text: str, limit: int
) -> None:
    pieces = window(limit).pieces("Ann: ", text)
    assert all(window(limit).cut(piece) == piece for piece in pieces)
    assert all(piece.startswith("Ann: ") and piece != "Ann: " for piece in pieces)
    assert "".join("".join(piece[5:].split()) for piece in pieces) == "".join(text.split())


@pytest.mark.parametrize("text", TEXTS)
def test_a_cut_text_is_the_beginning_and_uses_the_window(window: Callable[[int], Window], text: str) -> None:
    cut = window(40).cut(text)
    assert text.startswith(cut)
    ends = word_ends(cut) if window is WINDOWS["tokens"] else [0] * len(cut.encode())
    assert 36 < len(ends) <= 40


def test_no_character_is_split(window: Callable[[int], Window]) -> None:
    for limit in range(16, 24):
        assert set("".join(piece[1:] for piece in window(limit).pieces("-", "🚀" * 100))) == {"🚀"}


def test_pieces_end_with_sentences_or_else_between_words(window: Callable[[int], Window]) -> None:
    assert all(piece.endswith("here.") for piece in window(100).pieces("", SENTENCES))
    assert {word for piece in window(22).pieces("", "word " * 200) for word in piece.split()} == {"word"}


def test_a_lead_that_would_fill_the_window_is_shortened(window: Callable[[int], Window]) -> None:
    pieces = window(20).pieces("n" * 200 + ": ", "abcdefghi " * 3)
    assert all(re.fullmatch(r"n{5,9} [a-i ]+", piece) for piece in pieces)
    assert "".join(piece.strip("n ") for piece in pieces).replace(" ", "") == "abcdefghi" * 3


def test_of_a_huge_text_only_the_beginning_is_looked_at() -> None:
    seen: list[int] = []

    def ends(text: str) -> list[int]:
        seen.append(len(text))
        return word_ends(text)

    assert Window(100, ends).cut("x " * 5_000_000) == ("x " * 100).strip()
    assert seen == [1600]
