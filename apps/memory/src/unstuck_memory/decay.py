"""How confidence in a relation decays while nobody states it again."""

from __future__ import annotations

import math

from msgspec.structs import replace

from unstuck_memory.answers import DecayInfo
from unstuck_memory.values import Relation

DAY = 86_400_000
HALF_LIFE = 30 * DAY
LEAST_CONFIDENCE = 0.1


def decay_info(reference_time: int, decay_factor: float | None) -> DecayInfo:
    """What a decayed graph is computed with; without a factor, confidence halves in 30 days."""
    factor = math.log(0.5) / HALF_LIFE if decay_factor is None else decay_factor
    return DecayInfo(
        reference_time=reference_time,
        decay_factor=factor,
        half_life_days=math.log(0.5) / factor / DAY if factor else None,
        min_confidence=LEAST_CONFIDENCE,
    )


def decayed(relation: Relation, info: DecayInfo) -> Relation:
    """The relation with the confidence that is left at the reference time.

    A relation without a confidence stays without; one below the least confidence keeps what it has.
    """
    if relation.confidence is None:
        return relation
    age = max(0, info.reference_time - relation.updated_at)
    left = relation.confidence * math.exp(info.decay_factor * age)
    return replace(relation, confidence=max(left, min(relation.confidence, info.min_confidence)))
