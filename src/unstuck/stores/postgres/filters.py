"""A Filter as a condition. Values travel as parameters; only the fixed texts below make up the SQL."""

from __future__ import annotations

from unstuck.model import Filter, Status
from unstuck.stores.listing import by_finish, place
from unstuck.stores.postgres.rows import Params


def matching(which: Filter) -> tuple[str, Params]:
    """The condition and its parameters. Statuses are literals, so that partial indexes can serve."""
    terms = ["true"]
    params: Params = {}
    for name, text in _TERMS.items():
        if (value := getattr(which, name)) is not None:
            terms.append(text)
            params[name] = list(value) if name == "ids" else value
    if which.status is not None:
        terms.append(_STATUS[which.status])
    if which.dead:
        terms.append(f"{_STATUS[Status.FAILED]} AND jobs.settled IS DISTINCT FROM 'cancelled'")
    return " AND ".join(terms), params


def order(which: Filter, cursor: str | None) -> tuple[str, str, Params]:
    """Order by newest, the condition to begin behind a cursor, and its parameters."""
    columns = "jobs.finished_at DESC, jobs.seq DESC" if by_finish(which) else "jobs.seq DESC"
    if cursor is None:
        return columns, "true", {}
    *end, seq = place(cursor, which)
    if end:
        behind = "(jobs.finished_at, jobs.seq) < ('epoch'::timestamptz + %(at)s * interval '1 microsecond', %(seq)s)"
        return columns, behind, {"at": end[0], "seq": seq}
    return columns, "jobs.seq < %(seq)s", {"seq": seq}


_TERMS = {
    # First the numbers of those that are named: in one condition with an order the planner may read all jobs in it.
    "ids": "jobs.seq = ANY (ARRAY(SELECT named.seq FROM {schema}.jobs AS named WHERE named.id = ANY (%(ids)s)))",
    "queue": "jobs.queue = %(queue)s",
    "task": "jobs.task = %(task)s",
    "key": "jobs.key = %(key)s",
    "owner": "jobs.locked_by = %(owner)s",
    "category": "jobs.error ->> 'category' = %(category)s",
    "code": "jobs.error ->> 'code' = %(code)s",
    "older_than": "jobs.finished_at < clock_timestamp() - make_interval(secs => %(older_than)s)",
}
_STATUS = {
    Status.PENDING: "jobs.status = 'pending'",
    Status.PROCESSING: "jobs.status = 'processing'",
    Status.COMPLETED: "jobs.finished_at IS NOT NULL AND jobs.status = 'completed'",
    Status.FAILED: "jobs.status = 'failed'",
}
