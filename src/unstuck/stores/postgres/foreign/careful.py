"""carefully(): runs a part of a transaction that may fail without the rest."""

from __future__ import annotations

from typing import TypeVar

import psycopg
from psycopg import errors

from unstuck.stores.postgres.rows import Query, Row
from unstuck.stores.postgres.steps import Step

T = TypeVar("T")


def carefully(step: Step[T]) -> Step[T | psycopg.DatabaseError]:
    """The step's answer, or the error with which the server refused it; then its changes are undone.

    An unreachable server or a deadlock is not a refusal: these errors are raised.
    """
    yield Query("SAVEPOINT careful", {})
    try:
        answer = yield from step
    except psycopg.DatabaseError as error:
        if isinstance(error, psycopg.OperationalError) and not isinstance(error, errors.QueryCanceled):
            raise
        yield Query("ROLLBACK TO SAVEPOINT careful", {})
        return error
    yield Query("RELEASE SAVEPOINT careful", {})
    return answer


def asking(query: Query) -> Step[list[Row]]:
    return (yield query)
