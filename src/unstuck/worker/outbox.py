"""Outbox: outcomes on their way into the store. They stay until it has answered."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from unstuck.protocol.classify import failure
from unstuck.protocol.errors import PartlySettled, StoreDamaged, StoreError, StoreUnavailable
from unstuck.protocol.job import Category
from unstuck.protocol.outcome import Outcome, Settled, failed
from unstuck.protocol.store import Store

log = logging.getLogger("unstuck.worker")


class Outbox:
    """What is owed to the store. Outcomes that come while one batch is being written go out with the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        return len(self._outcomes)

    def unsent(self) -> tuple[Outcome, ...]:
        """What the store may not know yet. May be called from any thread."""
        return tuple(self._outcomes)

    def ids(self) -> list[str]:
        """The jobs whose outcomes are here, up to a hundred."""
        return [outcome.lease.id for outcome in self._outcomes[:100]]

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    async def send(self) -> list[tuple[Outcome, Settled]]:
        """Write all that is there. If the store is away, everything stays for the next time; what is left of a part stays."""
        batch = tuple(self._outcomes)
        answers: Sequence[Settled | None]
        try:
            answers = await self._store.settle(batch)
        except PartlySettled as error:
            log.warning("some outcomes cannot be written now, will try again: %s", error)
            answers = error.answers
        except (StoreUnavailable, StoreDamaged):
            raise
        except StoreError:
            # One of them cannot be stored. Alone it fails its own job, instead of holding up all others.
            answers = [await self._alone(outcome) for outcome in batch]
        answered = list(zip(batch, answers, strict=True))
        self._outcomes[: len(batch)] = [outcome for outcome, answer in answered if answer is None]
        return [(outcome, answer) for outcome, answer in answered if answer is not None]

    async def _alone(self, outcome: Outcome) -> Settled:
        try:
            [answer] = await self._store.settle([outcome])
        except (StoreUnavailable, StoreDamaged):
            raise
        except StoreError as error:
            log.error("the outcome of job %s cannot be stored: %s", outcome.lease.id, error)  # noqa: TRY400
            why = msgspec.structs.replace(failure(error), category=Category.PERMANENT, code="unstorable")
            [answer] = await self._store.settle([failed(outcome.lease, why)])
        return answer
