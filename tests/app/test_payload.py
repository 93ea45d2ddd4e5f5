"""Arguments on their way into a payload and back: what fits comes back equal, what does not is told in words."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.app.payload import Arguments
from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.json_text import LIMIT, encode

UNICODE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | UNICODE
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(UNICODE, inner, max_size=4)
)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Address:
    street: str
    numbers: list[int] = field(default_factory=list)


class Item(msgspec.Struct):
    name: str
    price: Decimal = Decimal(0)


class Person(pydantic.BaseModel):
    name: str
    born: date | None = None
    weight: float = 1.0


class Filter(TypedDict):
    query: str
    limit: NotRequired[int]


class Point(NamedTuple):
    x: float
    y: float


@dataclass
class Order:
    who: Person
    where: Address | None
    items: list[Item]
    tags: dict[str, set[Size]]


def plain(to: str, count: int = 1, *, urgent: bool = False) -> None: ...


def taking(hint: Any) -> Arguments:
    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = hint
    return Arguments(handler, "shop.send")


def there_and_back(arguments: Arguments, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """As a store does it: the payload is text for a while."""
    text = msgspec.json.encode(arguments.pack(args, kwargs))
    return arguments.unpack(msgspec.json.decode(text))


def refusal(arguments: Arguments, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        arguments.pack(args, kwargs)
    return str(caught.value)


def test_plain_arguments_come_back_by_name_with_their_defaults() -> None:
    arguments = Arguments(plain, "plain")

    assert there_and_back(arguments, "ann") == {"to": "ann", "count": 1, "urgent": False}
    assert there_and_back(arguments, "ann", 2, urgent=True) == {"to": "ann", "count": 2, "urgent": True}
    assert there_and_back(arguments, count=3, to="ann") == {"to": "ann", "count": 3, "urgent": False}


def test_a_task_without_parameters_has_an_empty_payload() -> None:
    arguments = Arguments(lambda: None, "tick")

    assert bytes(arguments.pack((), {})) == b"{}"
    assert arguments.unpack({}) == arguments.unpack(None) == {}


def test_parameters_without_annotations_take_what_json_can_represent() -> None:
    arguments = Arguments(lambda a, b=None: None, "loose")

    assert there_and_back(arguments, {"x": [1, "y", None]}) == {"a": {"x": [1, "y", None]}, "b": None}


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**53 + 1), (int, 2**63), (int, 2**64), (int, -(10**40)), (Any, 2**64 + 1), (float, 1), (float, 5e-324),
        (bool, True), (str, "naïve 你好 🙂 \\u0000 null"), (bytes, b"\0\xff"), (Decimal, Decimal("1.10")),
        (datetime, datetime(2027, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)), (datetime, datetime(2027, 1, 31)),  # noqa: DTZ001
        (date, date(2027, 1, 31)), (time, time(8, 30)), (timedelta, timedelta(days=3, microseconds=1)),
        (UUID, UUID(int=7)), (Size, Size.LARGE), (Level, Level.HIGH), (Literal["a", "b"], "b"),
        (int | None, None), (int | str, "5"), (int | str, 5), (list[int] | None, [1]), (tuple[int, str], (1, "a")),
        (set[int], {1, 2}), (frozenset[str], frozenset({"a"})), (dict[str, list[int]], {"a": [1]}),
        (dict[UUID, int], {UUID(int=7): 1}), (dict[date, int], {date(2027, 1, 31): 1}), (dict[Size, int], {Size.SMALL: 1}),
        (Point, Point(1.0, 2.5)), (Filter, {"query": "x"}), (Filter, {"query": "x", "limit": 3}),
        (Address, Address("Elm", [7])), (Item, Item("pen", Decimal("0.10"))), (Person, Person(name="ann", born=date(1990, 1, 1))),
        (Person | None, None), (list[Person], [Person(name="ann")]), (Annotated[int, msgspec.Meta(ge=1)], 1),
        (Order, Order(Person(name="ann"), Address("Elm"), [Item("pen")], {"a": {Size.SMALL, Size.LARGE}})),
        (Order, Order(Person(name="ann"), None, [], {})),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_value_comes_back_equal_and_of_its_type(hint: Any, value: Any) -> None:
    back = there_and_back(taking(hint), value)["value"]

    assert back == value
    assert type(back) is (float if hint is float else type(value))


@pytest.mark.parametrize(
    ("hint", "value"),
    [(dict[int, str], {1: "a"}), (dict[float, int], {1.5: 1}), (dict[Level, int], {Level.HIGH: 1})],
    ids=repr,
)
def test_numbers_as_keys_come_back_as_numbers(hint: Any, value: Any) -> None:
    assert there_and_back(taking(hint), value) == {"value": value}


@given(JSON)
def test_whatever_json_can_represent_comes_back_equal(value: Any) -> None:
    arguments = taking(Any)

    back = there_and_back(arguments, value)["value"]

    assert back == value
    assert repr(back) == repr(value)  # 1 is not 1.0 and not True, and 0.0 is not -0.0


@given(value=JSON, other=JSON)
def test_packing_is_the_same_every_time(value: Any, other: Any) -> None:
    arguments = Arguments(lambda a, b: None, "two")

    texts = {bytes(arguments.pack((value, other), {})), bytes(arguments.pack((value,), {"b": other}))}

    assert len(texts) == 1


@pytest.mark.parametrize(
    ("hint", "value", "expected", "got"),
    [
        (int, "5", "int", "str"), (int, 5.5, "int", "float"), (int, True, "int", "bool"), (int, None, "int", "null"),
        (str, 5, "str", "int"), (bool, 1, "bool", "int"), (float, "1.0", "float", "str"), (list[int], 5, "array", "int"),
        (Address, "Elm", "object", "str"), (datetime, 5, "datetime", "int"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused_with_task_field_and_types(
    hint: Any, value: Any, expected: str, got: str
) -> None:
    told = refusal(taking(hint), value)

    assert told == f"task 'shop.send': Expected `{expected}`, got `{got}` - at `$.value`"


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (Size, "xl", "Invalid enum value 'xl'"),
        (datetime, "tomorrow", "Invalid RFC3339 encoded datetime"),
        (list[int], [1, "2"], "Expected `int`, got `str` - at `$.value[1]`"),
        (Address, {"street": "Elm", "numbers": ["7"]}, "at `$.value.numbers[0]`"),
        (Filter, {"limit": 5}, "missing required field `query`"),
        (Person, {"name": "ann", "born": "never"}, "born"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "Expected `int` >= 1"),
        (Path, "a/b", "Path"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_line_that_names_the_place(
    hint: Any, value: Any, said: str
) -> None:
    told = refusal(taking(hint), value)

    assert told.startswith("task 'shop.send': ")
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'to'"),
        (("ann",), {"cuont": 2}, "got an unexpected keyword argument 'cuont'"),
        (("ann", 2, True), {}, "too many positional arguments"),
        (("ann",), {"to": "bob"}, "multiple values for argument 'to'"),
        (("ann", 2), {"count": 3}, "multiple values for argument 'count'"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused_with_the_signature(
    args: Any, kwargs: Any, said: str
) -> None:
    told = refusal(Arguments(plain, "plain"), *args, **kwargs)

    assert told.startswith(
        f"task 'plain': {said}; it takes (to: str, count: int = 1, *, urgent: bool = False)"
    )


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda *args: None, "*args"),
        (lambda **kwargs: None, "**kwargs"),
        (lambda a, /: None, "positional-only parameters"),
    ],
)
def test_arguments_that_cannot_be_checked_are_refused_at_registration(
    function: Callable[..., Any], kind: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Arguments(function, "shop.send")

    assert (
        str(caught.value)
        == f"task 'shop.send' takes {kind}: name every argument, so that payloads can be checked"
    )


@pytest.mark.parametrize(
    "hint",
    ["Nowhere", "math.nowhere", "list[", Address | Order, dict[str, Item] | Item, Item | Address],
    ids=str,
)
def test_an_annotation_that_cannot_be_understood_is_refused_at_registration(hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"^task 'shop.send'"):
        taking(hint)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "nan is not a number in JSON; use None"),
        (-math.inf, "-inf is not a number in JSON; use None"),
        ({"a": [None, 1.5, math.nan]}, "nan is not a number"),
        (Address("Elm", [math.inf]), "inf is not a number"),  # type: ignore[list-item]
        (Person(name="ann", weight=math.nan), "nan is not a number"),
        ("a\0b", "a text contains the NUL character"),
        ({"a\0": 1}, "a text contains the NUL character"),
        (Person(name="\0"), "a text contains the NUL character"),
        ("\ud800", "a text has half a surrogate pair"),
        ({"\udfff": 1}, "a text has half a surrogate pair"),
        (object(), "a value of type 'object' cannot be written as JSON; use a JSON value"),
        (3 + 4j, "a value of type 'complex' cannot be written as JSON"),
        ([plain], "a value of type 'function' cannot be written as JSON"),
        ({(1, 2): 3}, "a value of type 'tuple' cannot be written as JSON"),
    ],
)
def test_what_json_cannot_represent_is_refused_with_the_reason(value: Any, said: str) -> None:
    told = refusal(taking(Any), value)

    assert told.startswith("task 'shop.send': ")
    assert said in told


@pytest.mark.parametrize(("depth", "recursion"), [(1_100, 5_000), (100_000, 1_000)])
def test_a_value_that_is_nested_too_deeply_is_refused_whatever_python_could_bear(
    depth: int, recursion: int
) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    usual = sys.getrecursionlimit()

    try:
        sys.setrecursionlimit(recursion)
        told = refusal(taking(Any), value)
    finally:
        sys.setrecursionlimit(usual)

    assert "nested too deeply, or contains itself" in told


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    assert "nested too deeply, or contains itself" in refusal(taking(Any), value)


def test_a_payload_may_have_a_mebibyte_and_no_more() -> None:
    arguments = taking(str)
    frame = len(b'{"value":""}')

    told = refusal(arguments, "x" * (LIMIT - frame + 1))

    assert len(bytes(arguments.pack(("x" * (LIMIT - frame),), {}))) == LIMIT
    assert "1,048,577 bytes as JSON, at most 1,048,576 are allowed" in told
    assert told.endswith("store the data elsewhere and pass its address")


@pytest.mark.parametrize(
    "payload", [[], "x", 5, {"to": 5}, {}, {"to": "a", "gone": 1}, {"to": "a", "count": None}]
)
def test_a_payload_that_no_longer_fits_the_function_is_refused(payload: Any) -> None:
    with pytest.raises(PayloadError, match=r"^task 'plain': "):
        Arguments(plain, "plain").unpack(payload)


def test_a_default_is_written_down_when_the_job_is_enqueued() -> None:
    def tick(n: int = 1) -> None: ...

    old = Arguments(tick, "tick").pack((), {})
    tick.__defaults__ = (2,)

    assert Arguments(tick, "tick").unpack(msgspec.json.decode(old)) == {"n": 1}


def test_names_and_values_that_look_like_ours_are_plain_data() -> None:
    def odd(self: str, id: int, lease_until: Any, kwargs: Any) -> None: ...

    arguments = {
        "self": "me",
        "id": 1,
        "lease_until": {"fence": 9, "status": "failed"},
        "kwargs": {"__proto__": "$ref"},
    }

    assert there_and_back(Arguments(odd, "odd"), **arguments) == arguments


def test_a_result_is_held_to_the_same_rules() -> None:
    for bad in (math.nan, "\0", "\ud800", object(), "x" * LIMIT):
        with pytest.raises(PayloadError, match=r"^the result: "):
            encode(bad, "the result")

    assert encode({"a": [1, None]}, "the result") == b'{"a":[1,null]}'
    assert encode(Person(name="ann"), "the result") == b'{"name":"ann","born":null,"weight":1.0}'
