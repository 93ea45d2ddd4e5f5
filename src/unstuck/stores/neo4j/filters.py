"""A Filter as a MATCH. Values travel as parameters; only the fixed texts below make up the Cypher."""

from __future__ import annotations

from unstuck.model import Filter, Status
from unstuck.stores.listing import by_finish, place
from unstuck.stores.neo4j.rows import Params, milliseconds


def finished(which: Filter, label: str) -> tuple[str, Params]:
    """The finished jobs ``f`` that match, and the parameters."""
    terms, params = _terms(which)
    if which.ids is not None:
        return _named(["f.status IN ['completed', 'failed']", *terms], label), params
    found = _ORDERED.replace("CONDITION", " AND ".join(terms)).replace("{label}", label)
    return found, params


def listing(text: str, which: Filter, cursor: str | None, label: str) -> tuple[str, Params]:
    """The text of find.cypher, completed, and its parameters."""
    terms, params = _terms(which)
    order = "f.seq DESC"
    if by_finish(which):
        order = "f.status DESC, f.processed_at DESC, f.seq DESC"
    if cursor is not None:
        *end, seq = place(cursor, which)
        params |= {"seq": seq, "at": end[0] if end else None}
        behind = "(f.processed_at < $at OR (f.processed_at = $at AND f.seq < $seq))"
        terms.append(behind if end else "f.seq < $seq")
    if which.ids is not None:
        source = _named(terms, label)
    elif by_finish(which):
        source = f"{_match('SEEK f:{label}(status, processed_at)')} f.processed_at IS NOT NULL AND {' AND '.join(terms)}"
    elif which.status is not None or which.owner is not None:
        source = f"{_match('SEEK f:{label}(status)')} {' AND '.join(terms)}"
    else:
        source = f"{_match('f:{label}(seq)')} f.seq IS NOT NULL AND {' AND '.join(terms)}"
    return text.replace("{source}", source).replace("{order}", order).replace("{label}", label), params


def _terms(which: Filter) -> tuple[list[str], Params]:
    terms, params = ["true"], Params()
    if which.ids is not None:
        params["ids"] = list(which.ids)
    for name, text in _TERMS.items():
        if (value := getattr(which, name)) is not None:
            terms.append(text)
            params[name] = milliseconds(value) if name == "older_than" else str(value)
    if which.status is not None:
        terms.append(f"f.status = '{Status(which.status)}'")
    elif which.owner is not None:  # nobody has an owner who does not run
        terms.append("f.status = 'processing'")
    if which.dead:
        terms.append("f.status = 'failed' AND coalesce(f.settled, '') <> 'cancelled'")
    return terms, params


def _match(index: str) -> str:
    return f"MATCH (f:{{label}}) USING INDEX {index} WHERE"


def _named(terms: list[str], label: str) -> str:
    return _NAMED.replace("CONDITION", " AND ".join(terms)).replace("{label}", label)


_TERMS = {
    "queue": "f.queue = $queue",
    "task": "f.task = $task",
    "key": "f.key = $key",
    "owner": "f.lock_owner = $owner",
    "category": "toUpper(f.error_category) = $category",
    "code": "f.error_code = $code",
    "older_than": "f.processed_at < timestamp() - $older_than",
}
# An embedding job's id is its node's, that of any other is a property of its own.
_NAMED = """\
UNWIND $ids AS id
CALL (id) {
  MATCH (f:{label} {id: id}) WHERE f.job_id IS NULL RETURN f
  UNION
  MATCH (f:{label} {job_id: id}) RETURN f
}
WITH DISTINCT f WHERE CONDITION"""
# As many as are wanted of each kind, from its end of the index.
_ORDERED = """\
UNWIND ['completed', 'failed'] AS state
CALL (state) {
  MATCH (f:{label})
  USING INDEX SEEK f:{label}(status, processed_at)
  WHERE f.status = state AND f.processed_at IS NOT NULL AND CONDITION
  WITH f ORDER BY f.status, f.processed_at LIMIT $limit
  RETURN f
}"""
