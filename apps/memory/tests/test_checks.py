"""What callers pass in is brought into one form, or refused on one line that names field, range and next step."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from unstuck_memory import checks
from unstuck_memory.errors import InvalidInput
from unstuck_memory.values import NewEntity, NewRelation, Observations, RelationKey

ANN = {"name": "Ann", "entity_type": "person"}
KNOWS: dict[str, Any] = {"from_": "Ann", "to": "Bob", "relation_type": "knows"}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


def entity(**fields: Any) -> list[NewEntity]:
    return checks.entities([NewEntity(**(ANN | fields))])


def relation(**fields: Any) -> list[NewRelation]:
    return checks.relations([NewRelation(**(KNOWS | fields))])


def test_a_name_is_composed_and_trimmed_and_nothing_else() -> None:
    (made,) = entity(name="  Zoe\u0308 /\n'x' ", entity_type="\tperson ", changed_by=" me ")

    assert (made.name, made.entity_type, made.changed_by) == ("Zoë /\n'x'", "person", "me")
    assert entity(name="a" * 200)[0].name == "a" * 200
    assert entity(name="e\u0301" * 200)[0].name == "é" * 200


def test_an_observation_is_kept_as_it_was_written_but_only_once() -> None:
    (made,) = entity(observations=(" two  spaces ", "e\u0301", " two  spaces ", "é"))
    assert made.observations == (" two  spaces ", "e\u0301", "é")
    assert len(entity(observations=tuple(str(at) for at in range(1000)))[0].observations) == 1000
    assert entity(observations=["x" * 10_000])[0].observations == ("x" * 10_000,)


def test_names_are_not_repeated_once_they_are_in_one_form() -> None:
    assert checks.names("names", ["Ann", " Ann ", "Bob", "ann"]) == ["Ann", "Bob", "ann"]


def test_what_a_relation_does_not_state_stays_missing() -> None:
    assert relation() == [NewRelation(**KNOWS)]
    (made,) = relation(strength=0, confidence=1, metadata={})
    assert (made.strength, made.confidence, made.metadata) == (0.0, 1.0, {})


def test_metadata_is_json_and_comes_back_as_json_has_it() -> None:
    given = {"a": [1, 2.5, None, True, {"b": ("x", "é")}], "n": 2**63}
    assert relation(metadata=given)[0].metadata == {"a": [1, 2.5, None, True, {"b": ["x", "é"]}], "n": 2**63}
    full = {"x": "a" * (checks.METADATA - len('{"x":""}'))}
    assert relation(metadata=full)[0].metadata == full
    assert relation(metadata=deep(100))[0].metadata == deep(100)


def test_the_ends_of_each_range_are_allowed() -> None:
    assert [checks.limit(1), checks.limit(1000)] == [1, 1000]
    assert [checks.decay_factor(0), checks.decay_factor(-5.5)] == [0.0, -5.5]
    assert [checks.timestamp("timestamp", at) for at in (10**11, 10**14 - 1)] == [10**11, 10**14 - 1]
    assert [checks.older_than(0), checks.project(" é 1/x ")] == [0, "é 1/x"]
    checks.room("entity 'Ann'", 1000)


LONE, NUL, BIG = "a\ud800", "a\0b", "a" * 201
NAMES: list[tuple[Any, str]] = [
    ("", "is empty: 1 to 200 "),
    (" \t\n", "is empty: 1 to 200 "),
    (BIG, "has 201 characters: 1 to 200 "),
    ("x" * 10**6, "has 1,000,000 characters: 1 to 200 "),
    (NUL, "has the NUL character at position 1: 1 to 200 "),
    (LONE, "has half a surrogate pair at position 1: 1 to 200 "),
    (None, "is None: it must be a text of 1 to 200 "),
    (5, "is 5: it must be a text of 1 to 200 "),
    (b"Ann", "is of type bytes: it must be a text of 1 to 200 "),
    (10**400, "is of type int: it must be a text of 1 to 200 "),
]
OBSERVATIONS: list[tuple[Any, str]] = [
    ("", "is empty: 1 to 10,000 "),
    (" \n", "is empty: 1 to 10,000 "),
    ("x" * 10_001, "has 10,001 characters: 1 to 10,000 "),
    (NUL, "has the NUL character at position 1: 1 to 10,000 "),
    (LONE, "has half a surrogate pair at position 1: 1 to 10,000 "),
    (None, "is None: it must be a text of 1 to 10,000 "),
    ({}, "is of type dict: it must be a text of 1 to 10,000 "),
]
LISTS: list[tuple[Any, str]] = [
    ("abc", "is 'abc': it must be a list"),
    ({"a": 1}, "is of type dict: it must be a list"),
    (None, "is None: it must be a list"),
    (["x"] * 1001, "has 1,001 items: at most 1,000 "),
]
SHARES: list[tuple[Any, str]] = [
    (1.1, "is 1.1: it must be a number from 0 to 1"),
    (-0.1, "is -0.1: it must be a number from 0 to 1"),
    (math.nan, "is nan: it must be a number from 0 to 1"),
    (math.inf, "is inf: it must be a number from 0 to 1"),
    (True, "is True: it must be a number from 0 to 1"),
    ("0.5", "is '0.5': it must be a number from 0 to 1"),
]
METADATA: list[tuple[Any, str]] = [
    ({"x": "a" * (64 * 1024 - 7)}, "has 65,537 bytes as JSON: at most 65,536 "),
    ([1], "is of type list: it must be a JSON object"),
    ({"x": math.nan}, "has nan: JSON allows only finite numbers"),
    ({"x": [{"y": -math.inf}]}, "has -inf: JSON allows only finite numbers"),
    ({"x": NUL}, "has the NUL character at position 1: valid Unicode without NUL"),
    ({LONE: 1}, "has half a surrogate pair at position 1: valid Unicode without NUL"),
    ({1: 1}, "has a field name that is not a text"),
    ({"x": {1, 2}}, "has a value of type set: JSON allows"),
    ({"x": 2**64}, "has a whole number of more than 64 bits: from -2^63 to 2^64-1"),
    (deep(101), "is nested too deeply: at most 100 levels"),
]
TIMES: list[tuple[Any, str]] = [
    (1_700_000_000, "this looks like seconds, multiply it by 1000"),
    (1_700_000_000.5, "this looks like seconds, multiply it by 1000"),
    (1_700_000_000_000_000, "pass a time in milliseconds"),
    (0, "pass a time in milliseconds"),
    (-1, "pass a time in milliseconds"),
    (math.nan, "pass a time in milliseconds"),
    (True, "pass a time in milliseconds"),
    ("2026-01-01", "pass a time in milliseconds"),
    (1.7e12, "pass a time in milliseconds"),
]

REFUSED: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, str]]]] = {
    "entities[0].name": (lambda bad: entity(name=bad), NAMES),
    "entities[0].entityType": (lambda bad: entity(entity_type=bad), NAMES),
    "entities[0].changedBy": (lambda bad: entity(changed_by=bad), [one for one in NAMES if one[0] is not None]),
    "entities[0].observations": (lambda bad: entity(observations=bad), LISTS),
    "entities[0].observations[1]": (lambda bad: entity(observations=("x", bad)), OBSERVATIONS),
    "entities": (checks.entities, LISTS),
    "entities[0]": (
        lambda bad: checks.entities([bad]),
        [({"name": "Ann"}, "is of type dict: it must be a NewEntity"), (None, "is None")],
    ),
    "observations": (checks.additions, LISTS),
    "observations[0].entityName": (
        lambda bad: checks.additions([Observations(entity_name=bad, contents=("x",))]),
        NAMES,
    ),
    "observations[0].contents[0]": (
        lambda bad: checks.additions([Observations(entity_name="Ann", contents=(bad,))]),
        OBSERVATIONS,
    ),
    "observations[0].replaces[0]": (
        lambda bad: checks.additions([Observations(entity_name="Ann", contents=(), replaces=(bad,))]),
        OBSERVATIONS,
    ),
    "deletions[0].entityName": (
        lambda bad: checks.deletions([Observations(entity_name=bad, contents=("x",))]),
        NAMES,
    ),
    "deletions[0].contents[0]": (
        lambda bad: checks.deletions([Observations(entity_name="Ann", contents=(bad,))]),
        OBSERVATIONS,
    ),
    "deletions[0].replaces": (
        lambda bad: checks.deletions([Observations(entity_name="Ann", contents=(), replaces=bad)]),
        [(("x",), "is given: only contents are deleted")],
    ),
    "relations": (checks.relations, LISTS),
    "relations[0].from": (lambda bad: relation(from_=bad), NAMES),
    "relations[0].to": (lambda bad: relation(to=bad), NAMES),
    "relations[0].relationType": (lambda bad: relation(relation_type=bad), NAMES),
    "relations[0].strength": (lambda bad: relation(strength=bad), SHARES),
    "relations[0].confidence": (lambda bad: relation(confidence=bad), SHARES),
    "relations[0].metadata": (lambda bad: relation(metadata=bad), METADATA),
    "relations[1].to": (
        lambda bad: checks.keys([RelationKey(**KNOWS), RelationKey(**(KNOWS | {"to": bad}))]),
        NAMES,
    ),
    "to": (lambda bad: checks.key("Ann", bad, "knows"), NAMES),
    "names": (lambda bad: checks.names("names", bad), LISTS),
    "names[1]": (lambda bad: checks.names("names", ["Ann", bad]), NAMES),
    "timestamp": (lambda bad: checks.timestamp("timestamp", bad), TIMES),
    "limit": (
        checks.limit,
        [(bad, "it must be a whole number from 1 to 1000") for bad in (0, -1, 1.5, 10**9, True, "10", None)],
    ),
    "olderThan": (
        checks.older_than,
        [(bad, "it must be a whole number from 0 to ") for bad in (-1, 0.5, 10**15, math.nan, None)],
    ),
    "decayFactor": (
        checks.decay_factor,
        [(bad, "it must be a finite number of at most 0") for bad in (0.1, math.nan, -math.inf, -(10**400), "0")],
    ),
    "project": (
        checks.project,
        [(bad, "1 to 100 ") for bad in ("", " ", "a" * 101, "a\nb", NUL, LONE, "\u202ex", None, 5)],
    ),
    "entity 'Ann'": (
        lambda bad: checks.room("entity 'Ann'", bad),
        [(1001, "would have 1,001 observations: at most 1,000 ")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "bad", "range_"),
    [
        pytest.param(field, bad, words, id=f"{field}-{at}")
        for field, (_, cases) in REFUSED.items()
        for at, (bad, words) in enumerate(cases)
    ],
)
def test_what_is_refused_is_refused_on_one_line_with_field_range_and_next_step(
    field: str, bad: object, range_: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        REFUSED[field][0](bad)

    line = str(refused.value)
    assert line.startswith(f"{field} ")
    assert range_ in line
    assert ": " in line
    assert "; " in line
    assert len(line) < 300
    assert line.isprintable()


def test_many_observations_in_one_call_are_refused_whatever_they_are_for() -> None:
    words = tuple(str(at) for at in range(1000))
    with pytest.raises(InvalidInput, match=r"^entities have 11,000 observations together: at most 10,000 "):
        checks.entities([NewEntity(name=str(at), entity_type="t", observations=words) for at in range(11)])
    with pytest.raises(InvalidInput, match=r"^observations have 12,000 "):
        checks.additions(
            [Observations(entity_name=str(at), contents=words, replaces=words) for at in range(6)]
        )
    with pytest.raises(InvalidInput, match=r"^deletions have 11,000 "):
        checks.deletions([Observations(entity_name=str(at), contents=words) for at in range(11)])


def test_a_refusal_repeats_no_observation_and_little_of_a_name() -> None:
    with pytest.raises(InvalidInput) as refused:
        entity(observations=("secret " * 2000,))
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidInput) as refused:
        relation(strength="x" * 1000)
    assert "x" * 41 not in str(refused.value)
