"""Translates a Filter to MATCH clauses. Values are parameters; the Cypher consists only of the fixed texts below."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck.protocol.job import Status
from unstuck.protocol.operators import Filter
from unstuck.stores.neo4j.address import Neo4jAddress
from unstuck.stores.neo4j.rows import EMBED, Params
from unstuck.stores.shared.listing import by_finish, cursor_numbers
from unstuck.stores.shared.values import milliseconds


def finished(which: Filter, address: Neo4jAddress) -> tuple[str, Params]:
    """The clause that matches the finished jobs ``f`` of a filter, and its parameters."""
    terms, params = _terms(which, address)
    if which.ids is not None:
        source = _joined(_NAMED, ["f.status IN ['completed', 'failed']", *terms])
    else:
        source = _ORDERED.replace("CONDITION", " AND ".join(terms))
    return source.replace("{label}", address.label), params


def listing(text: str, which: Filter, cursor: str | None, address: Neo4jAddress) -> list[tuple[str, Params]]:
    """The completed text of find.cypher and its parameters; a second pair lists what comes after all of the first.

    Nodes that other programs made have no number until ``fill`` adds one, and finished ones never get one: among equals they
    come last, in the order of their ids.
    """
    terms, params = _terms(which, address)
    behind, order = (_BEHIND_END, _BY_END) if by_finish(which) else (_BEHIND, _BY_NUMBER)
    if which.ids is not None:
        parts = [(_NAMED, behind, order)]
    elif by_finish(which):
        parts = [(f"{_match('SEEK f:{label}(status, processed_at)')} f.processed_at >= 0 AND", behind, order)]
    elif which.status is not None or which.owner is not None:
        parts = [(_match("SEEK f:{label}(status)"), behind, order)]
    else:
        numbered = f"{_match('f:{label}(seq)')} f.seq IS NOT NULL AND"
        parts = [
            (numbered, "f.seq < $seq", "f.seq DESC"),
            ("MATCH (f:{label}) WHERE f.seq IS NULL AND", behind, order),
        ]
    if cursor is not None:
        numbers, marked, id_ = cursor.partition("~")
        *ended, seq = cursor_numbers(numbers, which)
        params |= {"seq": seq, "id": id_ if marked else None, "at": ended[0] if ended else None}
    return [
        (
            text.replace("{source}", _joined(match, [*terms, behind] if cursor is not None else terms))
            .replace("{order}", order)
            .replace("{label}", address.label),
            params,
        )
        for match, behind, order in parts
    ]


def end(node: Params, which: Filter) -> str:
    """The cursor of a page that ends with this node."""
    number = str(node["seq"]) if "seq" in node else f"0~{node['id']}"
    ended = node.get("processed_at")
    return f"{int(ended) if isinstance(ended, int | float) else 0}.{number}" if by_finish(which) else number


def _terms(which: Filter, address: Neo4jAddress) -> tuple[list[str], Params]:
    terms = ["f.id > ''"]  # a node whose id is missing or not text is not a job: doctor reports it
    params: Params = {"embedding": address.queue}
    if which.ids is not None:
        params["ids"] = list(which.ids)
    for name, text in _TERMS.items():
        if (value := getattr(which, name)) is not None:
            terms.append(text)
            params[name] = milliseconds(value) if name == "older_than" else str(value)
    if which.status is not None:
        terms.append(f"f.status = '{Status(which.status)}'")
    elif which.owner is not None:  # only running jobs have an owner
        terms.append("f.status = 'processing'")
    if which.dead:
        terms.append("f.status = 'failed' AND coalesce(f.settled, '') <> 'cancelled'")
    return terms, params


def _match(index: str) -> str:
    return f"MATCH (f:{{label}}) USING INDEX {index} WHERE"


def _joined(match: str, terms: Sequence[str]) -> str:
    return f"{match} {' AND '.join(terms)}"


# Missing properties have the same defaults as in rows.job.
_TERMS = {
    "queue": "coalesce(f.queue, $embedding) = $queue",
    "task": f"coalesce(f.task, '{EMBED}') = $task",
    "key": "f.key = $key",
    "owner": "f.lock_owner = $owner",
    "category": "toUpper(coalesce(f.error_category, CASE WHEN f.error IS NOT NULL THEN 'PERMANENT' END)) = $category",
    "code": "coalesce(f.error_code, CASE WHEN f.error IS NOT NULL THEN 'error' END) = $code",
    "older_than": "f.processed_at < timestamp() - $older_than",
}
# An embedding job's id is the id of its node; other jobs have it in the property job_id.
_NAMED = """\
UNWIND $ids AS id
CALL (id) {
  MATCH (f:{label} {id: id}) WHERE f.job_id IS NULL RETURN f
  UNION
  MATCH (f:{label} {job_id: id}) RETURN f
}
WITH DISTINCT f WHERE"""
_BY_NUMBER = "coalesce(f.seq, 0) DESC, f.id"
_BEHIND = "(coalesce(f.seq, 0) < $seq OR (coalesce(f.seq, 0) = $seq AND f.id > $id))"
_BY_END = f"f.status DESC, f.processed_at DESC, {_BY_NUMBER}"
_BEHIND_END = f"f.processed_at <= $at AND (f.processed_at < $at OR {_BEHIND})"
# Up to $limit jobs of each status, the oldest first, read in the order of the index.
_ORDERED = """\
UNWIND ['completed', 'failed'] AS state
CALL (state) {
  MATCH (f:{label})
  USING INDEX SEEK f:{label}(status, processed_at)
  WHERE f.status = state AND f.processed_at IS NOT NULL AND CONDITION
  WITH f ORDER BY f.status, f.processed_at LIMIT $limit
  RETURN f
}"""
