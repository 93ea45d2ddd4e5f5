"""A hosted provider over real HTTP: what it asks, which answers it refuses, and what its errors mean for a job."""

import logging
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from support_memory.embedding_server import (
    Answer,
    Body,
    Cut,
    EmbeddingServer,
    Refusal,
    Reset,
    Stall,
    Vectors,
    vector_of,
)
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.embeddings.providers.openai import BASE_URL, OpenAIProvider
from unstuck_memory.vectors import Model

from unstuck import Category, Permanent, classify

pytestmark = pytest.mark.anyio

KEY = "a-key-that-nobody-may-see"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def provider(server: EmbeddingServer) -> AsyncIterator[OpenAIProvider]:
    provider = OpenAIProvider(KEY, base_url=server.url, model="m", timeout=60)
    yield provider
    await provider.aclose()


async def failure(provider: OpenAIProvider, server: EmbeddingServer, answer: Answer) -> Exception:
    await provider.model()
    server.next(answer)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is the question
        await provider.embed(["one", "two"])
    return caught.value


async def test_vectors_come_back_in_the_order_of_the_texts(
    server: EmbeddingServer, provider: OpenAIProvider
) -> None:
    server.next(Vectors(), Vectors(reverse=True, scale=3))
    vectors = await provider.embed(["one", "two"])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [vector_of("one", 8), vector_of("two", 8)], atol=1e-6)


async def test_a_request_has_the_key_the_model_and_numbers_instead_of_base64(
    server: EmbeddingServer, provider: OpenAIProvider
) -> None:
    await provider.embed(["one", "two"])
    request = server.requests[-1]
    assert (request.texts, request.model, request.authorization) == (("one", "two"), "m", f"Bearer {KEY}")
    assert request.body["encoding_format"] == "float"


async def test_the_settings_of_the_environment_reach_the_server(server: EmbeddingServer) -> None:
    environ = {"OPENAI_BASE_URL": f"{server.url}/", "OPENAI_EMBEDDING_MODEL": "nomic"}
    provider = open_provider("openai", environ)
    assert await provider.model() == Model("nomic", 8)
    assert server.requests[0].model == "nomic"
    await provider.aclose()


async def test_an_unknown_dimension_is_asked_for_once(
    server: EmbeddingServer, provider: OpenAIProvider
) -> None:
    server.next(Refusal(503))
    with pytest.raises(Exception, match="503"):
        await provider.model()
    assert [await provider.model() for _ in range(3)] == [Model("m", 8)] * 3
    assert len(server.requests) == 2


async def test_dimensions_of_openais_own_models_are_known_without_a_request() -> None:
    for name, dimension in (("text-embedding-3-small", 1536), ("text-embedding-3-large", 3072)):
        assert await OpenAIProvider(KEY, model=name).model() == Model(name, dimension)
    assert BASE_URL == "https://api.openai.com/v1"


async def test_no_texts_are_no_request(server: EmbeddingServer, provider: OpenAIProvider) -> None:
    await provider.model()
    assert (await provider.embed([])).shape == (0, 8)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Vectors(more=-1), "model m answered 1 vectors for 2 texts: it must be one for each"),
        (Vectors(more=1), "model m answered 3 vectors for 2 texts: it must be one for each"),
        (Vectors(dimension=7), "model m answered a vector of 7 numbers: it must be 8 each time"),
        (
            Vectors(first=math.nan),
            "model m answered a vector with NaN or infinity: it must be finite numbers",
        ),
        (
            Vectors(first=math.inf),
            "model m answered a vector with NaN or infinity: it must be finite numbers",
        ),
        (Vectors(scale=0), "model m answered a vector without a direction: it must be a length above 0"),
        (
            Body(b'{"data": [{"embedding": [null,1,1,1,1,1,1,1]}, {"embedding": [1,1,1,1,1,1,1,1]}]}'),
            "model m answered a vector with NaN or infinity",
        ),
    ],
)
async def test_vectors_that_nobody_could_search_are_permanent(
    server: EmbeddingServer, provider: OpenAIProvider, answer: Answer, message: str
) -> None:
    error = await failure(provider, server, answer)
    assert isinstance(error, Permanent)
    assert message in str(error)
    assert "\n" not in str(error)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "category", "code"),
    [
        (Refusal(429, retry_after="7"), Category.TRANSIENT, "http_429"),
        (Refusal(500), Category.TRANSIENT, "http_500"),
        (Refusal(503), Category.TRANSIENT, "http_503"),
        (Reset(), Category.TRANSIENT, "APIConnectionError"),
        (Cut(), Category.TRANSIENT, "APIConnectionError"),
        (Cut(breaks=False), Category.TRANSIENT, "bad_answer"),
        (Body(b"<html>Welcome</html>"), Category.TRANSIENT, "bad_answer"),
        (Body(b'{"error": "overloaded"}'), Category.TRANSIENT, "bad_answer"),
        (Body(b'{"data": "\xff"}'), Category.TRANSIENT, "bad_answer"),
        (Refusal(429, code="insufficient_quota"), Category.TRANSIENT, "insufficient_quota"),
        (Refusal(401), Category.PERMANENT, "http_401"),
        (Refusal(404), Category.PERMANENT, "http_404"),
        (Refusal(400, message="maximum context length is 8192 tokens"), Category.PERMANENT, "http_400"),
    ],
)
async def test_what_a_broken_answer_means_for_the_job(
    server: EmbeddingServer, provider: OpenAIProvider, answer: Answer, category: Category, code: str
) -> None:
    found = classify(await failure(provider, server, answer))
    assert (found.category, found.code) == (category, code)
    assert found.delay == (7 if answer == Refusal(429, retry_after="7") else None)
    assert len(server.requests) == 2  # nothing was tried again
    assert (await provider.embed(["good again"])).shape == (1, 8)


async def test_a_server_that_stalls_or_is_not_there_is_transient(server: EmbeddingServer) -> None:
    provider = OpenAIProvider(KEY, base_url=server.url, model="m", timeout=0.2)
    server.next(Stall())
    with pytest.raises(Exception) as stalled:  # noqa: PT011 - the client's own
        await provider.model()
    assert classify(stalled.value)[:2] == (Category.TRANSIENT, "APITimeoutError")
    await provider.aclose()
    for host in ("127.0.0.1:9", "nobody.invalid"):  # nobody listens there; a name that no server of names has
        nobody = OpenAIProvider(KEY, base_url=f"http://{host}/v1", model="m")
        with pytest.raises(Exception) as refused:  # noqa: PT011 - the client's own
            await nobody.model()
        assert classify(refused.value)[:2] == (Category.TRANSIENT, "APIConnectionError")
        await nobody.aclose()


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_the_key_is_in_no_error_and_in_no_log(
    server: EmbeddingServer, provider: OpenAIProvider, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error: Any = await failure(provider, server, Refusal(status, message=f"Incorrect API key: {KEY}."))
    assert "Incorrect API key: [redacted]." in str(error)
    assert KEY not in f"{error} {error!r} {error.args} {error.message} {error.body} {error.__cause__}"
    assert caplog.records
    assert KEY not in caplog.text


async def test_long_texts_go_in_as_many_requests_as_openai_allows(
    server: EmbeddingServer, provider: OpenAIProvider
) -> None:
    texts = [f"{number:03} " + "x" * 8000 for number in range(80)]
    vectors = await provider.embed(texts)
    np.testing.assert_allclose(vectors, [vector_of(text, 8) for text in texts], atol=1e-6)
    sizes = [sum(map(len, request.texts)) for request in server.requests[1:]]
    assert len(sizes) == 3
    assert max(sizes) <= 300_000


async def test_texts_are_cut_and_split_to_the_window_whatever_their_language(
    provider: OpenAIProvider,
) -> None:
    for text in ("word " * 5000, "東京" * 5000, "🚀" * 9000):
        assert 8185 <= len(provider.cut(text).encode()) <= 8191
        pieces = provider.pieces("Ann: ", text)
        assert len(pieces) > 3
        assert max(len(piece.encode()) for piece in pieces) <= 8191
