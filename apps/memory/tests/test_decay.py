"""Confidence decays with the age of what was stated, by the factor and to the time that are asked for."""

import math

import pytest
from unstuck_memory.decay import DAY, decay_info, decayed
from unstuck_memory.values import Relation

STATED = 1_700_000_000_000


def stated(confidence: float | None, *, strength: float | None = None) -> Relation:
    return Relation(
        uid="1", from_="Ann", to="Bob", relation_type="knows", strength=strength, confidence=confidence, version=3,
        created_at=STATED - 90 * DAY, updated_at=STATED, valid_from=STATED - 60 * DAY,
    )  # fmt: skip


def test_confidence_halves_in_thirty_days_since_the_relation_was_last_stated() -> None:
    info = decay_info(STATED + 30 * DAY, None)

    assert info.decay_factor == math.log(0.5) / (30 * DAY)
    assert info.half_life_days == pytest.approx(30)
    assert decayed(stated(0.8), info).confidence == pytest.approx(0.4)
    assert decayed(stated(0.8), decay_info(STATED + 60 * DAY, None)).confidence == pytest.approx(0.2)


def test_the_factor_is_honoured_and_zero_means_no_decay() -> None:
    faster = decay_info(STATED + DAY, math.log(0.5) / DAY)
    assert decayed(stated(0.8), faster).confidence == pytest.approx(0.4)
    assert faster.half_life_days == pytest.approx(1)

    never = decay_info(STATED + 10_000 * DAY, 0.0)
    assert decayed(stated(0.8), never).confidence == 0.8
    assert never.half_life_days is None


def test_at_least_a_tenth_is_left_and_nothing_grows() -> None:
    late = decay_info(STATED + 10_000 * DAY, None)
    assert decayed(stated(0.9), late).confidence == 0.1
    assert decayed(stated(0.05), late).confidence == 0.05
    assert decayed(stated(0.0), late).confidence == 0.0
    assert decayed(stated(0.9), decay_info(10**14 - 1, -1e308)).confidence == 0.1


def test_before_it_was_stated_a_relation_has_its_whole_confidence() -> None:
    assert decayed(stated(0.8), decay_info(STATED - DAY, None)).confidence == 0.8


def test_only_confidence_decays_and_a_missing_one_stays_missing() -> None:
    info = decay_info(STATED + 30 * DAY, None)
    assert decayed(stated(None, strength=0.5), info) == stated(None, strength=0.5)
    assert decayed(stated(0.8, strength=0.5), info).strength == 0.5
