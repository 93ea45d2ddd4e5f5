"""Search: finds the entities of one project by words, by meaning, or by both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from unstuck_memory import checks, cursors
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graph import Graph
from unstuck_memory.query_vectors import PATIENCE, NoVectorError, QueryVectors
from unstuck_memory.search_words import best_observation, words_of
from unstuck_memory.values import Coverage, Entity, Value
from unstuck_memory.vectors import Model, Vector, VectorHit

Mode: TypeAlias = Literal["keyword", "semantic", "hybrid"]
Reason: TypeAlias = Literal[
    "embedding_service_not_configured", "query_embedding_failed", "no_embeddings_available"
]

SEMANTIC_WEIGHT = 0.6
POOL = 25  # nearest entities that are considered at least
BY_WORDS = 1_000  # entities whose keyword part is known
UNKNOWN = 10
"""Entities without vectors count as near as so many others are: a good match by words comes on the first page, a chance word after it."""
COMPARED = 4  # times as many that words find first are considered: to compare these costs little
REACH = 1_000  # hits of a search, on all its pages
EMPHASIS = 1.5
"""Exponent of the keyword score: one word that is there by chance weighs less than its share of the question. Measured with
``bench/memory_search.py``; with 1.0 wrong entities with such a word came before right ones without any."""


class SearchHit(Value, frozen=True, kw_only=True):
    """An entity that was found. In hybrid mode ``score`` is the weighted mean of both parts; in the others it is that part.

    An entity without current vectors has no semantic part, and counts as if it were as near as the tenth.
    """

    rank: int
    """Counted from 1, through all pages."""
    entity: Entity
    score: float
    keyword: float | None
    """0 to 1: the share of the best possible match by words; None in semantic mode."""
    semantic: float | None
    """-1 to 1: the cosine of the best vector; None in keyword mode, and without current vectors."""
    observation: str | None
    """The one that matched; None if that was the name, the type or the whole."""
    cursor: str
    """Continues behind this hit, also if more hits were answered."""

    @property
    def similarity(self) -> float | None:
        """The semantic part on the scale of ``min_similarity``."""
        return None if self.semantic is None else _similarity(self.semantic)


class SearchAnswer(Value, frozen=True, kw_only=True):
    """A page of hits, and how they were found."""

    hits: tuple[SearchHit, ...]
    mode: Mode
    """The mode that ran."""
    requested: Mode
    reason: Reason | None = None
    """Why another mode ran than the one asked for."""
    provider: str | None = None
    """The kind of provider whose vectors are searched; None if none is configured."""
    model: str | None = None
    coverage: Coverage | None = None
    """How many entities have vectors of this model; None if a search by words did not need the model."""
    dropped: int = 0
    """How many of the entities that were considered ``min_similarity`` left out."""
    next_cursor: str | None = None


class _Position(Struct, array_like=True):
    """Behind which hit a page begins. A search goes on in the mode in which it began."""

    mode: Mode
    reason: Reason | None
    rank: int = 0
    score: float = 0.0
    uid: str = ""


class _Asked(Struct, frozen=True):
    """A question after its checks: what a cursor belongs to."""

    project: str
    query: str
    mode: Mode
    min_similarity: float | None
    semantic_weight: float
    entity_types: tuple[str, ...] | None

    @property
    def types(self) -> list[str] | None:
        return None if self.entity_types is None else list(self.entity_types)


class _Meaning(Struct, frozen=True):
    """What search by meaning has to go by; without a vector, why."""

    reason: Reason | None = None
    model: Model | None = None
    vector: Vector | None = None
    coverage: Coverage | None = None


class _Found(Struct, frozen=True):
    """A candidate. ``score`` does not depend on how many others were considered, so that pages fit together."""

    uid: str
    score: float
    keyword: float | None
    semantic: VectorHit | None


class Search:
    """Finds current entities of one project. What was just written is found by its words at once, by its meaning once it is embedded.

    Without a provider, or if the question has no vector within 2 seconds, the answer is by words and gives the reason.
    """

    def __init__(
        self, graph: Graph, provider: Provider | None, project: str, *, patience: float = PATIENCE
    ) -> None:
        self.project = checks.project(project)
        self._graph = graph
        self._provider = provider
        self._vectors = None if provider is None else QueryVectors(provider, patience)

    async def find(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        limit: int = 10,
        cursor: str | None = None,
        min_similarity: float | None = None,
        semantic_weight: float = SEMANTIC_WEIGHT,
        entity_types: Sequence[str] | None = None,
    ) -> SearchAnswer:
        """A page of entities, the best first; at most 1,000 on all pages.

        Every character of the query is text. ``min_similarity`` is (1 + cosine) / 2, from 0 to 1, and leaves out what has a lower one;
        without it nothing is left out. It says nothing about entities without vectors, and nothing in keyword mode.
        ``semantic_weight`` is the weight of meaning in hybrid mode; words have the rest. A cursor goes with the arguments of its search;
        only ``limit`` may be another one. No ``entity_types`` are all types.
        """
        asked = _Asked(
            project=self.project,
            query=checks.query(query),
            mode=_mode(mode),
            min_similarity=checks.share("min_similarity", min_similarity),
            semantic_weight=_weight(semantic_weight),
            entity_types=tuple(checks.names("entity_types", entity_types or [])) or None,
        )
        limit = checks.limit(limit)
        after = cursors.read(cursor, _Position, asked)
        begun = after.rank if after else 0
        limit = min(limit, max(0, REACH - begun))
        depth = min(REACH, max(POOL, 2 * (begun + limit) + 1))
        found, answer, began = await self._candidates(asked, depth, after)
        if after is not None:
            found = [one for one in found if (-one.score, one.uid) > (-after.score, after.uid)]
        page = [
            (one, replace(began, rank=rank, score=one.score, uid=one.uid))
            for rank, one in enumerate(found[:limit], begun + 1)
        ]
        hits = await self._hits(asked, page)
        more = len(found) > limit > 0 and begun + limit < REACH
        return replace(answer, hits=hits, next_cursor=cursors.made(page[-1][1], asked) if more else None)

    async def _candidates(
        self, asked: _Asked, depth: int, after: _Position | None
    ) -> tuple[list[_Found], SearchAnswer, _Position]:
        """What is worth a place, the best first, an answer that has everything but hits, and where this search begins."""
        mode: Mode = after.mode if after else asked.mode
        by_words, meaning = await asyncio.gather(
            self._by_words(asked, needed=mode != "semantic"),
            self._meaning(asked.query) if mode != "keyword" else self._known(after),
        )
        near: list[VectorHit] = []
        unknown = 0.0
        if meaning.model and meaning.vector is not None:
            first = list(by_words)[: COMPARED * depth]
            near = await self._graph.nearest(
                self.project, meaning.model, meaning.vector, depth, types=asked.types
            )
            unknown = near[:UNKNOWN][-1].score if near else 0.0
            seen = {hit.uid for hit in near}
            if others := [uid for uid in first if uid not in seen]:
                near += await self._graph.compare(self.project, meaning.model, meaning.vector, others)
            both = {*first, *(hit.uid for hit in near)}
            by_words = {uid: score for uid, score in by_words.items() if uid in both}
        elif mode != "keyword":
            if after is not None:
                raise InvalidInput(
                    f"cursor is of a {mode} search, which cannot go on now ({meaning.reason}): try again later, "
                    "or leave cursor out to begin again"
                )
            by_words = by_words if mode == "hybrid" else await self._by_words(asked)
            mode = "keyword"
        low = {hit.uid for hit in near if _similarity(hit.score) < (asked.min_similarity or 0.0)}
        found = _scored(
            mode,
            {uid: score for uid, score in by_words.items() if uid not in low},
            {hit.uid: hit for hit in near if hit.uid not in low},
            asked.semantic_weight,
            unknown,
        )
        answer = SearchAnswer(
            hits=(), mode=mode, requested=asked.mode, reason=meaning.reason, coverage=meaning.coverage,
            provider=self._provider.kind if self._provider else None,
            model=meaning.model.name if meaning.model else None, dropped=len(low),
        )  # fmt: skip
        return found, answer, after or _Position(mode, meaning.reason)

    async def _by_words(self, asked: _Asked, *, needed: bool = True) -> dict[str, float]:
        """The keyword parts of entities, the best first."""
        words = words_of(asked.query)
        if not needed or not words:
            return {}
        hits = await self._graph.keyword(self.project, words, BY_WORDS, types=asked.types)
        return {hit.uid: hit.score**EMPHASIS for hit in hits}

    async def _meaning(self, query: str) -> _Meaning:
        if self._vectors is None:
            return _Meaning("embedding_service_not_configured")
        deadline = self._vectors.deadline()
        try:
            model = await self._vectors.model(deadline)
            coverage = await self._graph.coverage(self.project, model)
            if not coverage.embedded:
                return _Meaning("no_embeddings_available", model, None, coverage)
            try:
                vector = await self._vectors.of(query, deadline)
            except NoVectorError:
                return _Meaning("query_embedding_failed", model, None, coverage)
        except NoVectorError:
            return _Meaning("query_embedding_failed")
        return _Meaning(None, model, vector, coverage)

    async def _known(self, after: _Position | None) -> _Meaning:
        """What is known without asking the provider."""
        reason = after.reason if after else None
        if self._vectors is None or (model := self._vectors.known_model) is None:
            return _Meaning(reason)
        return _Meaning(reason, model, None, await self._graph.coverage(self.project, model))

    async def _hits(self, asked: _Asked, page: Sequence[tuple[_Found, _Position]]) -> tuple[SearchHit, ...]:
        """What of a page is still current."""
        uids = [one.uid for one, _ in page]
        entities = {entity.uid: entity for entity in await self._graph.get_by_uid(uids)} if uids else {}
        words = words_of(asked.query)
        return tuple(
            SearchHit(
                rank=position.rank,
                entity=entities[one.uid],
                score=one.score,
                keyword=one.keyword,
                semantic=one.semantic.score if one.semantic else None,
                observation=_matched(entities[one.uid], one.semantic, words),
                cursor=cursors.made(position, asked),
            )
            for one, position in page
            if one.uid in entities
        )


def _scored(
    mode: Mode, words: Mapping[str, float], near: Mapping[str, VectorHit], weight: float, unknown: float
) -> list[_Found]:
    found = []
    for uid in words.keys() | near.keys():
        keyword = None if mode == "semantic" else words.get(uid, 0.0)
        hit = near.get(uid)
        score = hit.score if hit else unknown
        if keyword is not None:
            score = keyword if mode == "keyword" else weight * score + (1 - weight) * keyword
        found.append(_Found(uid, score, keyword, hit))
    return sorted(found, key=lambda one: (-one.score, one.uid))


def _matched(entity: Entity, hit: VectorHit | None, words: Sequence[str]) -> str | None:
    at = hit.observation if hit else None
    if at is None:
        at = best_observation(entity.observations, words)
    # The entity may have changed since it was found.
    return entity.observations[at] if at is not None and at < len(entity.observations) else None


def _similarity(cosine: float) -> float:
    return (1.0 + cosine) / 2.0


def _mode(value: Mode) -> Mode:
    if value not in get_args(Mode):
        raise InvalidInput(
            f"mode is {value!r:.60}: it must be keyword, semantic or hybrid; leave it out for hybrid"
        )
    return value


def _weight(value: float) -> float:
    if (found := checks.share("semantic_weight", value)) is None:
        raise InvalidInput("semantic_weight is None: it must be a number from 0 to 1; leave it out for 0.6")
    return found
