"""A graph with a past."""

from unstuck_memory.memory import Memory

from support_memory.conformance.given import more, new, related


async def lived(memory: Memory) -> None:
    """A graph with a history: versions, deleted and merged entities, a name that was given again, all kinds of relations."""
    await memory.create_entities(
        [new("Ann", "tall", by="me"), new("Bob", "línea\n\u2028\x01"), new("Cid"), new("Anne", "kind")]
    )
    await memory.create_relations([
        related("Ann", "Bob", strength=0.25, confidence=0.1, metadata={"a": [1, 0.1, None, {"b": "é"}]}),
        related("Ann", "Ann"), related("Bob", "Cid", confidence=1), related("Anne", "Cid", "is related to"),
    ])  # fmt: skip
    await memory.add_observations([more("Ann", "old"), more("Bob", "loud")])
    await memory.update_relation(related("Ann", "Bob", confidence=0.9, changed_by="you"))
    await memory.delete_entities(["Cid"])
    await memory.create_entities([new("Cid", "is another one")])
    await memory.create_relations([related("Anne", "Cid", "is related to")])
    await memory.merge_entities("Anne", "Ann")
