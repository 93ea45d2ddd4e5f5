"""A Filter as a condition. Values are passed as parameters; the SQL consists only of the fixed texts below."""

from __future__ import annotations

from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.stores.postgres.rows import Params
from unstuck.stores.shared.listing import by_finish, cursor_numbers


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


def listing(text: str, which: Filter, cursor: str | None) -> tuple[str, Params]:
    """The completed text of find.sql, and its parameters."""
    condition, params = matching(which)
    by, behind, cursor_params = _order(which, cursor)
    one_kind = which.ids or which.status or which.dead or which.owner is not None
    source = "{schema}.jobs" if one_kind else _ALL
    parts = {"{source}": source, "{matching}": f"{condition} AND {behind}", "{order}": by}
    for part, meaning in parts.items():
        text = text.replace(part, meaning)
    return text, params | cursor_params


def _order(which: Filter, cursor: str | None) -> tuple[str, str, Params]:
    """The order, newest first, the condition for jobs after a cursor, and its parameters."""
    columns = "jobs.finished_at DESC, jobs.seq DESC" if by_finish(which) else "jobs.seq DESC"
    if cursor is None:
        return columns, "true", {}
    *end, seq = cursor_numbers(cursor, which)
    if end:
        behind = "(jobs.finished_at, jobs.seq) < ('epoch'::timestamptz + %(at)s * interval '1 microsecond', %(seq)s)"
        return columns, behind, {"at": end[0], "seq": seq}
    return columns, "jobs.seq < %(seq)s", {"seq": seq}


_TERMS = {
    # The subquery finds the named jobs first: with a plain condition the planner may read all jobs in the listing's order.
    "ids": "jobs.ctid = ANY (ARRAY(SELECT named.ctid FROM {schema}.jobs AS named WHERE named.id = ANY (%(ids)s)))",
    "queue": "jobs.queue = %(queue)s",
    "task": "jobs.task = %(task)s",
    "key": "jobs.key = %(key)s",
    "owner": "jobs.status = 'processing' AND jobs.locked_by = %(owner)s",  # only a running job has an owner
    "category": "jobs.error ->> 'category' = %(category)s",
    "code": "jobs.error ->> 'code' = %(code)s",
    # now(), because no index is used for a time that may change from row to row: all rows would be read.
    "older_than": "jobs.finished_at < now() - make_interval(secs => %(older_than)s)",
}
# Jobs of any state: up to the limit of each kind; a kind has an index in this order, or is small enough to be sorted.
_ONE = "SELECT * FROM {schema}.jobs WHERE KIND AND {matching} ORDER BY {order} LIMIT %(limit)s"
_KINDS = "jobs.status = 'pending'", "jobs.status = 'processing'", "jobs.finished_at IS NOT NULL"
_ALL = f"(({') UNION ALL ('.join(_ONE.replace('KIND', kind) for kind in _KINDS)})) AS jobs"
_STATUS = {
    Status.PENDING: "jobs.status = 'pending'",
    Status.PROCESSING: "jobs.status = 'processing'",
    Status.COMPLETED: "jobs.finished_at IS NOT NULL AND jobs.status = 'completed'",
    Status.FAILED: "jobs.status = 'failed'",
}
