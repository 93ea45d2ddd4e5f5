"""The server of embeddings that tests use: it answers, and breaks, as it was asked to."""

import json
import math
from collections.abc import Iterator

import httpx2
import pytest
from support_memory.embedding_server import (
    Body,
    Cut,
    EmbeddingServer,
    Refusal,
    Request,
    Reset,
    Stall,
    Vectors,
    vector_of,
)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(dimension=4) as server:
        yield server


@pytest.fixture
def client(server: EmbeddingServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client


def ask(client: httpx2.Client, *texts: str) -> httpx2.Response:
    return client.post(
        "/embeddings", json={"input": texts, "model": "m"}, headers={"Authorization": "Bearer k"}
    )


def test_it_answers_with_unit_vectors_and_remembers_what_it_was_asked(
    server: EmbeddingServer, client: httpx2.Client
) -> None:
    data = ask(client, "one", "two").json()["data"]
    assert [each["embedding"] for each in data] == [vector_of("one", 4), vector_of("two", 4)]
    assert math.isclose(sum(number * number for number in data[0]["embedding"]), 1)
    (request,) = server.requests
    assert (request.texts, request.model, request.authorization) == (("one", "two"), "m", "Bearer k")


def test_answers_are_given_in_turn_and_then_as_usual(server: EmbeddingServer, client: httpx2.Client) -> None:
    server.next(
        Refusal(429, retry_after="3"), Refusal(500), Refusal(429, code="insufficient_quota"), Body(b"[]")
    )
    busy, broken, unpaid, odd, good = (ask(client, "x") for _ in range(5))
    assert (busy.status_code, busy.headers["retry-after"], broken.status_code) == (429, "3", 500)
    assert (unpaid.json()["error"]["code"], odd.content, good.status_code) == (
        "insufficient_quota",
        b"[]",
        200,
    )


def test_vectors_can_be_wrong_in_number_dimension_value_and_order(
    server: EmbeddingServer, client: httpx2.Client
) -> None:
    server.next(
        Vectors(more=-1), Vectors(more=1), Vectors(dimension=3), Vectors(first=math.nan), Vectors(scale=0)
    )
    fewer, more, shorter, odd, zero = (json.loads(ask(client, "x", "y").content)["data"] for _ in range(5))
    assert (len(fewer), len(more), len(shorter[0]["embedding"])) == (1, 3, 3)
    assert math.isnan(odd[0]["embedding"][0])
    assert [number or 0.0 for number in zero[0]["embedding"]] == [0.0] * 4
    server.next(Vectors(reverse=True))
    assert [each["index"] for each in ask(client, "x", "y").json()["data"]] == [1, 0]


def test_a_connection_can_be_reset_or_cut(server: EmbeddingServer, client: httpx2.Client) -> None:
    server.next(Reset(), Cut(), Cut(breaks=False))
    with pytest.raises(httpx2.ReadError, match="reset"):
        ask(client, "x")
    with pytest.raises(httpx2.RemoteProtocolError):
        ask(client, "x")
    with pytest.raises(json.JSONDecodeError):
        ask(client, "x").json()


def test_a_stalled_request_is_answered_when_it_is_released(
    server: EmbeddingServer, client: httpx2.Client
) -> None:
    server.next(Stall())
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/embeddings", json={"input": "x", "model": "m"}, timeout=0.2)
    server.release()
    server.next(Stall())
    assert ask(client, "y").status_code == 200


def test_the_usual_answer_can_depend_on_the_texts(server: EmbeddingServer, client: httpx2.Client) -> None:
    def poison(request: Request) -> Refusal | Vectors:
        return Refusal(400) if "poison" in request.texts else Vectors()

    server.always(poison)
    assert [ask(client, text).status_code for text in ("good", "poison", "good")] == [200, 400, 200]
