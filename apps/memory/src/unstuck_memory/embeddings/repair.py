"""Repair: gives jobs to current entities that have no vectors, whatever the reason is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from unstuck_memory.embeddings.queue import OLD, EmbeddingQueue
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity
from unstuck_memory.vectors import Model

log = logging.getLogger("unstuck_memory.repair")

PAGE = 500  # entities that are read at a time
EVERY = 60.0  # seconds between two passes
FILLED = 2.0  # seconds until a pass goes on that stopped because the queue was full


class Repair:
    """Passes over all entities without vectors, page by page.

    Those that have waited longest come first. A pass stops while the queue is full, and goes on where it stopped: entities
    whose jobs wait, run or failed for good hold up nobody. What failed for good stays so, until somebody retries it.
    """

    def __init__(self, graph: Graph, queue: EmbeddingQueue, model: Callable[[], Awaitable[Model]]) -> None:
        self._graph = graph
        self._queue = queue
        self._model = model
        self._after: Entity | None = None
        self._due = -float("inf")

    async def run(self) -> None:
        """Pass after pass, until cancelled. What goes wrong is logged, and tried again."""
        while True:
            await self.if_due()
            await asyncio.sleep(max(self._due - time.monotonic(), 0.0))

    async def if_due(self) -> None:
        """Make a pass, or go on with one, if it is time."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY
        try:
            if not await self.once():
                self._due = time.monotonic() + FILLED
        except Exception as error:  # noqa: BLE001 - a provider's errors can be of any kind, and vectors are still missing
            log.warning("entities without embeddings could not be looked for: %s", error)

    async def once(self) -> bool:
        """Go on until there is nothing left; false if the queue was full before."""
        model, added = await self._model(), 0
        while not await self._queue.full():
            page = await self._graph.without_embeddings(model, PAGE, after=self._after)
            added += await self._enqueue(page, model)
            if len(page) < PAGE:
                self._after = None
                if added:
                    log.info("%d entities had no embedding and no job: they have jobs now", added)
                return True
            self._after = page[-1]
        return False

    async def _enqueue(self, entities: Sequence[Entity], model: Model) -> int:
        """Answers how many jobs were new, or started over because their vectors are gone."""
        if not entities:
            return 0
        answers = await self._queue.add(entities, model.name, priority=OLD)
        existing = {
            answer.id: entity for answer, entity in zip(answers, entities, strict=True) if not answer.created
        }
        lost = [
            existing[id_]
            for id_ in await self._queue.completed(list(existing))
            # It may have been completed since the page was read.
            if await self._graph.embedding_of(existing[id_].uid, model) is None
        ]
        again = await self._queue.add(lost, model.name, priority=OLD, again=True) if lost else []
        return len(entities) - len(existing) + sum(answer.created for answer in again)
