"""Seconds: a length of time as an argument, a number or a timedelta. It is stored as a number."""

from __future__ import annotations

from datetime import timedelta

Seconds = float | timedelta


def in_seconds(length: Seconds) -> float:
    return length.total_seconds() if isinstance(length, timedelta) else length
