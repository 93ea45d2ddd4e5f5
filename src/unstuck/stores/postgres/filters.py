"""A Filter as a condition. Values travel as parameters; only the fixed texts below make up the SQL."""

from __future__ import annotations

from unstuck.model import Filter, Status
from unstuck.stores.listing import by_finish
from unstuck.stores.listing import place as place_of
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


def listing(text: str, which: Filter, cursor: str | None) -> tuple[str, Params]:
    """The text of find.sql, completed, and its parameters."""
    condition, params = matching(which)
    by, behind, place = _order(which, cursor)
    one_kind = which.ids or which.status or which.dead or which.owner is not None
    source = "{schema}.jobs" if one_kind else _ALL
    parts = {"{source}": source, "{matching}": f"{condition} AND {behind}", "{order}": by}
    for part, meaning in parts.items():
        text = text.replace(part, meaning)
    return text, params | place


def _order(which: Filter, cursor: str | None) -> tuple[str, str, Params]:
    """Order by newest, the condition to begin behind a cursor, and its parameters."""
    columns = "jobs.finished_at DESC, jobs.seq DESC" if by_finish(which) else "jobs.seq DESC"
    if cursor is None:
        return columns, "true", {}
    *end, seq = place_of(cursor, which)
    if end:
        behind = "(jobs.finished_at, jobs.seq) < ('epoch'::timestamptz + %(at)s * interval '1 microsecond', %(seq)s)"
        return columns, behind, {"at": end[0], "seq": seq}
    return columns, "jobs.seq < %(seq)s", {"seq": seq}


_TERMS = {
    # First where those lie that are named: in one condition with an order the planner may read all jobs in it.
    "ids": "jobs.ctid = ANY (ARRAY(SELECT named.ctid FROM {schema}.jobs AS named WHERE named.id = ANY (%(ids)s)))",
    "queue": "jobs.queue = %(queue)s",
    "task": "jobs.task = %(task)s",
    "key": "jobs.key = %(key)s",
    "owner": "jobs.status = 'processing' AND jobs.locked_by = %(owner)s",  # nobody has an owner who does not run
    "category": "jobs.error ->> 'category' = %(category)s",
    "code": "jobs.error ->> 'code' = %(code)s",
    # now(), because an index is not searched for a time that changes from row to row: all would be read in vain.
    "older_than": "jobs.finished_at < now() - make_interval(secs => %(older_than)s)",
}
# Jobs of any state: as many as are wanted of each kind that has an index in order, or is small enough to be sorted.
_ONE = "SELECT * FROM {schema}.jobs WHERE KIND AND {matching} ORDER BY {order} LIMIT %(limit)s"
_KINDS = "jobs.status = 'pending'", "jobs.status = 'processing'", "jobs.finished_at IS NOT NULL"
_ALL = f"(({') UNION ALL ('.join(_ONE.replace('KIND', kind) for kind in _KINDS)})) AS jobs"
_STATUS = {
    Status.PENDING: "jobs.status = 'pending'",
    Status.PROCESSING: "jobs.status = 'processing'",
    Status.COMPLETED: "jobs.finished_at IS NOT NULL AND jobs.status = 'completed'",
    Status.FAILED: "jobs.status = 'failed'",
}
