"""The values have the names of the memento family in JSON."""

import msgspec
from unstuck_memory.values import NewRelation


def test_the_ends_of_a_relation_are_called_from_and_to() -> None:
    text = b'{"from": "Ann", "to": "Bob", "relationType": "knows", "confidence": 0.5}'
    relation = msgspec.json.decode(text, type=NewRelation)
    assert (relation.from_, relation.to, relation.relation_type) == ("Ann", "Bob", "knows")
    assert msgspec.json.decode(msgspec.json.encode(relation)) == {
        "from": "Ann", "to": "Bob", "relationType": "knows",
        "strength": None, "confidence": 0.5, "metadata": None, "changedBy": None,
    }  # fmt: skip
