"""How outcomes are grouped for a store, and whether one that did not apply was repeated or lost.

SQLite, PostgreSQL with its foreign tables, and Neo4j decide it here, in ``answer``. Redis decides it in
``stores/redis/lua/settle.lua``, in the script that also makes the change. One conformance test, ``test_repeated_or_lost``, has the whole table for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from unstuck.protocol.job import Ref
from unstuck.protocol.outcome import Outcome, Settled


def fits_one_statement(outcomes: Sequence[Outcome]) -> bool:
    """Whether one statement can apply them all: no job is named twice, and nothing follows."""
    return not any(outcome.then or outcome.pause or outcome.halt for outcome in outcomes) and len(
        {outcome.lease[:2] for outcome in outcomes}
    ) == len(outcomes)


def once_each(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes in groups, in order, in each of which no job is named twice."""
    groups: list[list[Outcome]] = []
    named: set[Ref] = set()
    for outcome in outcomes:
        if not groups or outcome.lease.ref in named:
            groups.append([])
            named = set()
        groups[-1].append(outcome)
        named.add(outcome.lease.ref)
    return groups


def missed(outcomes: Sequence[Outcome], applied: Collection[int]) -> list[Outcome]:
    """The outcomes whose indices are not among the applied ones."""
    return [outcome for index, outcome in enumerate(outcomes) if index not in applied]


def answers(
    outcomes: Sequence[Outcome], applied: Collection[int], ended: Mapping[Ref, tuple[int, str]]
) -> list[Settled]:
    """The answer to each outcome; ``ended`` has the fence and the ending of those jobs whose outcomes did not apply."""
    return [
        Settled.APPLIED if index in applied else answer(outcome, ended.get(outcome.lease.ref))
        for index, outcome in enumerate(outcomes)
    ]


def answer(outcome: Outcome, ended: tuple[int, str] | None) -> Settled:
    """The answer to an outcome that did not apply: repeated if this lease had ended in this way, else lost."""
    return Settled.REPEATED if ended == (outcome.lease.fence, outcome.ending) else Settled.LOST
