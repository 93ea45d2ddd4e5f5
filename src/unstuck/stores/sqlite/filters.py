"""A Filter as a condition. Values are passed as parameters; the SQL consists only of the fixed texts below."""

from __future__ import annotations

from typing import Any

from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.stores.shared.listing import by_finish, cursor_numbers
from unstuck.stores.shared.values import json_text, milliseconds

Params = dict[str, Any]


def matching(which: Filter, now: int) -> tuple[str, Params]:
    """The condition and its parameters. Statuses are literals, so that partial indexes can serve."""
    terms = ["1"]
    params: Params = {}

    def term(sql: str, **values: Any) -> None:
        terms.append(sql)
        params.update(values)

    if which.ids is not None:
        term("id IN (SELECT value FROM json_each(:ids))", ids=json_text(which.ids))
    if which.queue is not None:
        term("queue = :queue", queue=which.queue)
    if which.status is not None:
        term(_STATUS[which.status])
    if which.dead:
        term(f"{_STATUS[Status.FAILED]} AND settled IS NOT 'cancelled'")
    if which.task is not None:
        term("task = :task", task=which.task)
    if which.key is not None:
        term("key = :key", key=which.key)
    if which.owner is not None:
        term("owner = :owner", owner=which.owner)
    if which.category is not None:
        term(f"{_ERROR} ->> '$.category' = :category", category=str(which.category))
    if which.code is not None:
        term(f"{_ERROR} ->> '$.code' = :code", code=which.code)
    if which.older_than is not None:
        term("finished_at < :before", before=now - milliseconds(which.older_than))
    return " AND ".join(terms), params


def order(which: Filter, cursor: str | None) -> tuple[str, str, Params]:
    """The order, newest first, the condition for jobs after a cursor, and its parameters."""
    columns = "finished_at DESC, seq DESC" if by_finish(which) else "seq DESC"
    if cursor is None:
        return columns, "1", {}
    *end, seq = cursor_numbers(cursor, which)
    if end:
        return columns, "(finished_at, seq) < (:at, :seq)", {"at": end[0], "seq": seq}
    return columns, "seq < :seq", {"seq": seq}


_ERROR = "(CASE WHEN json_valid(error) THEN error END)"  # one that somebody edited must not make the whole listing fail
_STATUS = {
    Status.PENDING: "status = 'pending'",
    Status.PROCESSING: "status = 'processing'",
    Status.COMPLETED: "finished_at IS NOT NULL AND status = 'completed'",
    Status.FAILED: "finished_at IS NOT NULL AND status = 'failed'",
}
