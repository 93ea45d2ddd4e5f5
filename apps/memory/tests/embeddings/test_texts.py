"""Which texts of an entity get a vector: the whole one and each observation, led by the name."""

from hashlib import sha256

from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.texts import texts_of
from unstuck_memory.values import Entity


def entity(*observations: str, name: str = "Ann") -> Entity:
    return Entity(
        uid="u", name=name, entity_type="person", observations=observations,
        version=1, created_at=1, updated_at=1, valid_from=1,
    )  # fmt: skip


def test_an_entity_without_observations_is_its_name_and_type() -> None:
    (text,) = texts_of(entity(), MockProvider())
    assert (text.text, text.observation) == ("Ann (person)", None)


def test_the_whole_entity_comes_first_and_then_each_observation_behind_the_name() -> None:
    texts = texts_of(entity("likes tea", "lives in Bern"), MockProvider())
    assert [(text.text, text.observation) for text in texts] == [
        ("Ann (person)\nlikes tea\nlives in Bern", None),
        ("Ann: likes tea", 0),
        ("Ann: lives in Bern", 1),
    ]
    assert [text.hash for text in texts] == [sha256(text.text.encode()).digest() for text in texts]


def test_a_new_observation_leaves_the_texts_of_the_others_as_they_were() -> None:
    before = {text.hash for text in texts_of(entity("likes tea", "lives in Bern"), MockProvider())}
    after = {
        text.hash for text in texts_of(entity("likes tea", "has a dog", "lives in Bern"), MockProvider())
    }
    assert len(before & after) == 2
    assert len(after - before) == 2  # the whole entity, and the new one


def test_a_long_observation_becomes_several_texts_and_the_whole_is_cut() -> None:
    provider = MockProvider()
    texts = texts_of(entity("short", " ".join(f"Sentence {number}." for number in range(400))), provider)
    assert [text.observation for text in texts] == [None, 0, *[1] * (len(texts) - 2)]
    assert len(texts) > 4
    assert all(provider.cut(text.text) == text.text for text in texts)
    assert all(text.text.startswith("Ann: ") for text in texts[1:])
    assert (
        texts_of(entity("short", " ".join(f"Sentence {number}." for number in range(400))), provider) == texts
    )


def test_no_text_is_there_twice() -> None:
    texts = texts_of(entity("tea " * 5000), MockProvider())
    assert len({text.hash for text in texts}) == len(texts) < 5
