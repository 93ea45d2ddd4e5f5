"""Which words of a question are searched for, and which observation has the most of them."""

import pytest
from unstuck_memory.search_words import MOST_WORDS, best_observation, words_of


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is the name of Ann's cat?", ["name", "ann", "cat"]),
        ("Who are you?", ["who", "are", "you"]),
        ("The Who", ["the", "who"]),
        ('foo( AND "bar" OR baz:* NOT', ["foo", "bar", "baz"]),
        ("write to ann@example.org", ["write", "ann", "example", "org"]),
        ("snake_case KX67-RTO 7.5", ["snake_case", "kx67", "rto", "7", "5"]),
        ("Straße STRASSE", ["straße", "strasse"]),
        ("cafe\u0301 caf\u00e9", ["caf\u00e9"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("東京 \U0001f600 …", ["東京"]),
        ('\U0001f600 * "', []),
    ],
)  # fmt: skip
def test_words_are_what_is_left_without_stop_words_and_punctuation(question: str, words: list[str]) -> None:
    assert words_of(question) == words


def test_a_question_has_only_so_many_words() -> None:
    assert len(words_of(" ".join(f"w{number}" for number in range(1_000)))) == MOST_WORDS


def test_the_best_observation_has_the_most_of_the_words_in_any_form() -> None:
    observations = ["bought a horse", "rides her horses daily", "sleeps"]
    assert best_observation(observations, ["riding", "horse"]) == 1
    assert best_observation(observations, ["horse"]) == 0
    assert best_observation(observations, ["zebra"]) is None
    assert best_observation([], ["zebra"]) is None
