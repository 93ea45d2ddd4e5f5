"""The verb ``unstuck-memory search``."""

from __future__ import annotations

import click

from unstuck_memory.search import Mode, Search, SearchAnswer, SearchHit
from unstuck_memory.verbs.opened import opened, run
from unstuck_memory.verbs.output import WIDTH, fit, json_option, print_json, project_option

WHY = {
    "embedding_service_not_configured": "no provider of embeddings is configured",
    "query_embedding_failed": "the provider gave no vector for the query in time",
    "no_embeddings_available": "nothing is embedded yet",
}
HEAD = "  #  score  words  meaning  "


@click.command()
@click.argument("query")
@click.option(
    "--mode",
    type=click.Choice(["keyword", "semantic", "hybrid"]),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or by both.",
)
@click.option("--limit", type=int, default=10, show_default=True, help="Hits of a page.")
@click.option(
    "--min-similarity", type=float, help="Leave out what is less similar: 0 to 1. [default: nothing]"
)
@click.option(
    "--type", "types", multiple=True, help="Only entities of this type; may be given several times."
)
@click.option("--cursor", help="Continue the same search where a page ended.")
@project_option
@json_option
def search(
    query: str,
    mode: Mode,
    limit: int,
    min_similarity: float | None,
    types: tuple[str, ...],
    cursor: str | None,
    project: str,
    *,
    as_json: bool,
) -> None:
    """Find entities by words and by meaning, the best first."""

    async def find() -> SearchAnswer:
        async with opened(project) as memory:
            return await Search(memory.graph, memory.provider, project).find(
                query,
                mode=mode,
                limit=limit,
                cursor=cursor,
                min_similarity=min_similarity,
                entity_types=types,
            )

    found = run(find())
    if as_json:
        print_json(found)
        return
    if found.hits:
        click.echo(f"{HEAD}entity")
    for hit in found.hits:
        _print(hit)
    for row in _how(found):
        click.echo(row)
    if found.next_cursor is not None:
        click.echo(f"more: --cursor {found.next_cursor}")


def _print(hit: SearchHit) -> None:
    numbers = f"{hit.rank:3}  {hit.score:5.2f}  {_part(hit.keyword):>5}  {_part(hit.semantic):>7}  "
    click.echo(numbers + fit(f"{hit.entity.name} ({hit.entity.entity_type})", WIDTH - len(HEAD)))
    if hit.observation is not None:
        click.echo(" " * len(HEAD) + fit(hit.observation, WIDTH - len(HEAD)))


def _part(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _how(found: SearchAnswer) -> list[str]:
    parts = [f"{len(found.hits)} found by {found.mode} search"]
    if found.reason is not None:
        parts.append(f"not by {found.requested} search: {WHY[found.reason]}")
    if found.coverage is not None and found.coverage.embedded < found.coverage.entities:
        parts.append(f"{found.coverage.embedded} of {found.coverage.entities} entities have embeddings")
    if found.dropped:
        parts.append(f"{found.dropped} less similar left out")
    return parts
