"""A knowledge-graph memory whose embeddings are made by a durable queue.

The names below are imported when they are first used, so that the command answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck_memory.answers import DecayedGraph as DecayedGraph
    from unstuck_memory.answers import EntitiesWritten as EntitiesWritten
    from unstuck_memory.answers import Imported as Imported
    from unstuck_memory.answers import KnowledgeGraph as KnowledgeGraph
    from unstuck_memory.answers import Merged as Merged
    from unstuck_memory.embeddings.jobs import EmbeddingJobs as EmbeddingJobs
    from unstuck_memory.embeddings.providers import open_provider as open_provider
    from unstuck_memory.errors import GraphDamaged as GraphDamaged
    from unstuck_memory.errors import GraphUnavailable as GraphUnavailable
    from unstuck_memory.errors import InvalidInput as InvalidInput
    from unstuck_memory.errors import NotFound as NotFound
    from unstuck_memory.errors import SettingsError as SettingsError
    from unstuck_memory.errors import UnstuckMemoryError as UnstuckMemoryError
    from unstuck_memory.graphs.neo4j import Neo4jGraph as Neo4jGraph
    from unstuck_memory.graphs.sqlite import SqliteGraph as SqliteGraph
    from unstuck_memory.memory import Memory as Memory
    from unstuck_memory.search import Search as Search
    from unstuck_memory.search import SearchAnswer as SearchAnswer
    from unstuck_memory.search import SearchHit as SearchHit
    from unstuck_memory.values import Entity as Entity
    from unstuck_memory.values import NewEntity as NewEntity
    from unstuck_memory.values import NewRelation as NewRelation
    from unstuck_memory.values import Observations as Observations
    from unstuck_memory.values import Relation as Relation
    from unstuck_memory.values import RelationKey as RelationKey

_HOMES = {
    "answers": "DecayedGraph EntitiesWritten Imported KnowledgeGraph Merged",
    "embeddings.jobs": "EmbeddingJobs",
    "embeddings.providers": "open_provider",
    "errors": "GraphDamaged GraphUnavailable InvalidInput NotFound SettingsError UnstuckMemoryError",
    "graphs.neo4j": "Neo4jGraph",
    "graphs.sqlite": "SqliteGraph",
    "memory": "Memory",
    "search": "Search SearchAnswer SearchHit",
    "values": "Entity NewEntity NewRelation Observations Relation RelationKey",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of names, made from the table


def __getattr__(name: str) -> Any:
    if (module := _HOME.get(name)) is None:
        raise AttributeError(f"module 'unstuck_memory' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"unstuck_memory.{module}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
