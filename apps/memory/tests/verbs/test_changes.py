"""The verbs repair, merge and purge."""

import pytest
from support_memory.verbs import ANN, LYON, Command

BOB = {"name": "Bob", "entityType": "person", "observations": ["is tall"]}
ANNE = {"name": "Anne", "entityType": "person", "observations": ["plays the cello", "likes tea"]}


@pytest.mark.accepts("EMB-122", "EMB-130", "EMB-131")
def test_repair_of_a_name_queues_one_job_also_if_it_was_completed_and_with_a_limit(lived_in: Command) -> None:
    lived_in.embed()
    assert lived_in.data("status")["queue"]["pending"] == 0
    found = lived_in.data("repair", "Ann", "--limit", "0")
    assert (found["mode"], found["queued"], found["newlyScheduled"]) == ("specific", 1, 1)
    assert [job["entity"] for job in found["jobs"]] == ["Ann"]
    assert lived_in.data("status")["queue"]["pending"] == 1
    assert lived_in.good("repair", "Ann").splitlines()[0] == "was queued before: Ann"
    assert lived_in.embed() == 1


@pytest.mark.accepts("EMB-126", "EMB-129", "EMB-132")
def test_repair_without_a_name_queues_what_has_no_embedding_and_counts_truly(command: Command) -> None:
    command.store(*[BOB | {"name": f"Bob {number}"} for number in range(12)])
    assert command.data("repair")["discovered"] == 10
    command.embed(9)
    found = command.data("repair", "--limit", "20")
    assert (found["mode"], found["discovered"], found["queued"], found["newlyScheduled"]) == (
        "batch",
        3,
        3,
        0,
    )
    assert {job["new"] for job in found["jobs"]} == {False}
    for file in command.folder.glob("jobs.db*"):  # the queue is lost
        file.unlink()
    found = command.data("repair", " ", "--limit", "2")
    assert (found["discovered"], found["queued"], found["newlyScheduled"]) == (2, 2, 2)
    rows = command.good("repair", "--limit", "3").splitlines()
    assert rows[3] == "3 entities without embeddings found, 1 newly queued"
    assert rows[4].startswith("no worker runs: start unstuck-memory mcp")
    command.embed()
    command.good("repair")
    command.embed()
    assert command.good("repair") == "0 entities without embeddings found, 0 newly queued\n"


def test_merge_shows_what_would_move_and_moves_it(lived_in: Command) -> None:
    lived_in.store(ANNE)
    moves = "1 observation and 0 relations {} from 'Anne' to 'Ann'\n"
    assert lived_in.good("merge", "Anne", "Ann", "--dry-run") == moves.format("would move")
    assert lived_in.data("show", "Anne")["entity"]["version"] == 1
    assert lived_in.good("merge", "Anne", "Ann") == moves.format("moved")
    assert lived_in.data("show", "Ann")["entity"]["observations"] == [*ANN["observations"], "likes tea"]
    assert "'Anne'" in lived_in.bad("merge", "Anne", "Ann")
    merged = lived_in.data("merge", "Ann", "Lyon")["merge"]
    assert (merged["observations"], merged["dryRun"]) == (3, False)


def test_purge_asks_first_unless_it_may_and_deletes_what_is_archived_for_so_long(lived_in: Command) -> None:
    lived_in.store(ANNE)
    lived_in.good("merge", "Anne", "Ann")
    assert "cannot ask here: add --yes" in lived_in.bad("purge", "--older-than", "0s", input="y\n")
    nothing = "0 versions of entities and 0 versions of relations deleted for good\n"
    assert lived_in.good("purge", "--older-than", "30d", "--yes") == nothing
    assert len(lived_in.data("show", "Ann", "--history")["history"]) == 2
    assert lived_in.good("purge", "--older-than", "0s", "--yes").startswith("2 versions of entities and 0 ")
    assert len(lived_in.data("show", "Ann", "--history")["history"]) == 1
    assert lived_in.data("purge", "--older-than", "1w", "--yes") == {"entities": 0, "relations": 0}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["repair", "Bob"], "has no entity 'Bob': one that exists is needed"),
        (["repair", "--limit", "0"], "limit is 0: it must be a whole number from 1 to 1000"),
        (["repair", "x" * 201], "name has 201 characters"),
        (["merge", "Ann"], "Missing argument 'INTO'"),
        (["merge", "Ann", "Bob"], "'Bob'"),
        (["merge", "Ann", " Ann "], "into is 'Ann', as source is"),
        (["merge", "Ann", ""], "into is empty"),
        (["purge", "--yes"], "Missing option '--older-than'"),
        (["purge", "--yes", "--older-than", "30"], "--older-than is '30': it must be a whole number with s, m, h, d or w"),
        (["purge", "--yes", "--older-than", "-1d"], "--older-than is '-1d'"),
        (["purge", "--yes", "--older-than", "1.5d"], "--older-than is '1.5d'"),
        (["purge", "--yes", "--older-than", "36501d"], "up to 36500d"),
        (["purge", "--yes", "--older-than", "1d", "--project", "other"], "project 'other' is unknown"),
        (["purge", "--yes", "--older-than", "٣d"], "for example 30d"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_changes_nothing(lived_in: Command, args: list[str], why: str) -> None:
    before = lived_in.data("show", "Ann", "--history")
    assert why in lived_in.bad(*args)
    assert lived_in.data("show", "Ann", "--history") == before
    assert lived_in.data("show", "Lyon")["entity"]["observations"] == LYON["observations"]
