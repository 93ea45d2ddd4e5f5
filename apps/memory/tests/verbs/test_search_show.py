"""The verbs search and show."""

import pytest
from support_memory.embedding_server import EmbeddingServer, Refusal
from support_memory.verbs import ANN, LIVES, LYON, Command


def test_search_prints_each_hit_with_its_scores_and_what_matched(lived_in: Command) -> None:
    lived_in.embed()
    rows = lived_in.good("search", "cello").splitlines()
    assert rows[0].split() == ["#", "score", "words", "meaning", "entity"]
    rank, score, words, meaning, *entity = rows[1].split()
    assert (rank, entity) == ("1", ["Ann", "(person)"])
    assert all(0 <= float(part) <= 1 for part in (score, words, meaning))
    assert rows[2].strip() == "plays the cello"
    assert rows[-1] == "2 found by hybrid search"


def test_search_shows_why_another_mode_ran_and_how_far_embeddings_are(lived_in: Command) -> None:
    text = lived_in.good("search", "cello")
    assert "1 found by keyword search\nnot by hybrid search: nothing is embedded yet" in text
    assert "0 of 2 entities have embeddings" in text
    lived_in.embed(1)
    assert "1 of 2 entities have embeddings" in lived_in.good("search", "cello")


def test_search_goes_on_where_a_page_ended(lived_in: Command) -> None:
    lived_in.embed()
    first = lived_in.good("search", "Lyon", "--limit", "1")
    cursor = first.splitlines()[-1].removeprefix("more: --cursor ")
    second = lived_in.good("search", "Lyon", "--limit", "1", "--cursor", cursor)
    assert second.splitlines()[1].split()[0] == "2"
    assert "more:" not in second
    assert "belongs to another question" in lived_in.bad("search", "Ann", "--cursor", cursor)


def test_search_passes_its_options_on(lived_in: Command) -> None:
    lived_in.embed()
    found = lived_in.data("search", "Lyon", "--type", "city", "--type", "river")
    assert [hit["entity"]["name"] for hit in found["hits"]] == ["Lyon"]
    found = lived_in.data("search", "Lyon", "--mode", "semantic", "--min-similarity", "1")
    assert (found["hits"], found["mode"], found["dropped"]) == ([], "semantic", 2)
    assert "0 found by semantic search\n2 less similar left out" in lived_in.good(
        "search", "Lyon", "--mode", "semantic", "--min-similarity", "1"
    )


def test_no_text_of_the_memory_steers_the_terminal_or_leaves_its_80_columns(command: Command) -> None:
    name = "\x1b]0;mine\x07 ünd 漢字" + "漢" * 90
    command.store({"name": name, "entityType": "kind\x9b31m", "observations": ["red \x1b[31m\r" + "x" * 300]})
    for args in (("search", "red", "--mode", "keyword"), ("show", name), ("show", name, "--history")):
        text = command.good(*args)
        assert all(character.isprintable() for row in text.splitlines() for character in row), text
        assert r"\x1b" in text
    for row in command.good("search", "red", "--mode", "keyword").splitlines():
        assert sum(2 if character in "漢字" else 1 for character in row) <= 80
    assert all(len(row) <= 80 for row in command.good("show", name).splitlines())


def test_show_prints_observations_relations_and_what_became_of_the_embeddings(lived_in: Command) -> None:
    rows = lived_in.good("show", "Ann").splitlines()
    assert rows[0] == "Ann (person)"
    assert rows[1].startswith("version 1 of 20")
    assert rows[2:] == [
        "  - plays the cello",
        "  - lives in Lyon",
        "  Ann -[lives in]-> Lyon",
        "embeddings: none, its job waits for a worker",
    ]
    lived_in.embed()
    assert lived_in.good("show", "Ann").splitlines()[-1] == "embeddings: 3 vectors by mock"
    shown = lived_in.data("show", "Lyon")
    assert (shown["entity"]["name"], shown["embeddings"]["state"]) == ("Lyon", "embedded")
    assert [relation["relationType"] for relation in shown["relations"]] == ["lives in"]
    assert "history" in shown


def test_show_prints_why_embeddings_failed(lived_in: Command, server: EmbeddingServer) -> None:
    hosted = {
        "UNSTUCK_MEMORY_EMBEDDINGS": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "a-secret-key",
    }  # fmt: skip
    lived_in.store(ANN | {"observations": ["likes tea"]})
    assert "none, it has no job" in lived_in.good("show", "Ann", **hosted)
    server.always(Refusal(401, message="wrong key a-secret-key"))
    text = lived_in.good("show", "Ann", **(hosted | {"OPENAI_EMBEDDING_MODEL": "other"}))
    assert "  - likes tea\n" in text
    assert text.endswith(
        "embeddings: unknown; provider openai does not answer: AuthenticationError; look at its settings and its server\n"
    )


def test_show_history_has_what_each_version_changed(lived_in: Command) -> None:
    lived_in.store(
        ANN | {"observations": ["likes tea"]}, {"name": "Anne", "entityType": "person", "observations": ["x"]}
    )
    rows = lived_in.good("show", "Ann", "--history").splitlines()
    start = rows.index("history")
    changes = [row for row in rows[start + 1 :] if not row.startswith("  version")]
    assert changes[:3] == ["    + plays the cello", "    + lives in Lyon", "    + likes tea"]
    assert sum(row.startswith("  version") for row in rows) == 2
    lived_in.good("merge", "Anne", "Ann")
    gone = lived_in.good("show", "Anne", "--history")
    assert "    + x\n" in gone
    assert gone.endswith("embeddings: none, only current versions have any\n")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["show", "Bob"], "has no entity 'Bob': one that exists is needed"),
        (["show", "Bob", "--history"], "has no entity 'Bob'"),
        (["show", ""], "name is empty"),
        (["show", "Ann", "--project", "other"], "project 'other' is unknown"),
        (["search", " "], "query is empty: 1 to 10,000 characters are allowed"),
        (["search", "x" * 100_000], "query has 100,000 characters"),
        (["search", "x", "--limit", "0"], "limit is 0: it must be a whole number from 1 to 1000"),
        (["search", "x", "--limit", "1.5"], "'1.5' is not a valid integer"),
        (["search", "x", "--limit", "1000000000"], "limit is 1000000000"),
        (
            ["search", "x", "--min-similarity", "1.1"],
            "min_similarity is 1.1: it must be a number from 0 to 1",
        ),
        (["search", "x", "--min-similarity", "nan"], "min_similarity is nan"),
        (["search", "x", "--mode", "both"], "'both' is not one of"),
        (["search", "x", "--cursor", "%%"], "it is not one of this memory's"),
        (["search"], "Missing argument 'QUERY'"),
    ],
)
def test_wrong_input_is_one_line(lived_in: Command, args: list[str], why: str) -> None:
    assert why in lived_in.bad(*args)


@pytest.mark.parametrize("query", ['"', "foo(", "*", "a:b", "🦊", "NOT", "cello'); DROP TABLE entity; --"])
def test_every_character_of_a_query_is_text(lived_in: Command, query: str) -> None:
    lived_in.good("search", "--", query)
    assert lived_in.data("show", "Ann")["relations"][0]["to"] == LIVES["to"] == LYON["name"]
