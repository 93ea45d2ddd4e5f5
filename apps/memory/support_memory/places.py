"""Where the graphs of a test live: opened by the test itself, and by the programs that it starts."""

import json
from dataclasses import dataclass

from unstuck_memory.graph import Graph


@dataclass(frozen=True)
class Place:
    """A file, or a database of a server. ``crowd`` is how many processes are many there."""

    address: tuple[str, ...]
    crowd: int = 16

    def graph(self) -> Graph:
        """A graph that is not opened yet."""
        if len(self.address) == 1:
            from unstuck_memory.graphs.sqlite import SqliteGraph

            return SqliteGraph(*self.address)
        from unstuck_memory.graphs.neo4j import Neo4jGraph

        return Neo4jGraph(*self.address)

    def __str__(self) -> str:
        return json.dumps(self.address)


def place(text: str) -> Place:
    """Of what ``str(place)`` gave."""
    return Place(tuple(json.loads(text)))
