"""How outcomes are put to a store, and what became of each, for stores that end many leases in one statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from unstuck.model import Outcome, Ref, Settled


def plain(outcomes: Sequence[Outcome]) -> bool:
    """Whether one statement says it all: no job is named twice, and nothing follows."""
    return not any(outcome.then or outcome.pause for outcome in outcomes) and len(
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
    """Those whose places are not among the applied ones."""
    return [outcome for place, outcome in enumerate(outcomes) if place not in applied]


def answers(
    outcomes: Sequence[Outcome], applied: Collection[int], ended: Mapping[Ref, tuple[int, str]]
) -> list[Settled]:
    """What became of each; ``ended`` says by which lease and word the jobs of those that were missed had ended."""
    return [
        Settled.APPLIED
        if place in applied
        else Settled.REPEATED
        if ended.get(outcome.lease.ref) == (outcome.lease.fence, outcome.word)
        else Settled.LOST
        for place, outcome in enumerate(outcomes)
    ]
