"""Which provider is used, what it costs before its first use, and what all of them promise."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support_memory.tiny_bert import write_tiny_bert
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.embeddings.providers.local import LocalProvider
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.embeddings.providers.windows import Window, bytes_window
from unstuck_memory.errors import SettingsError
from unstuck_memory.vectors import Model

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-153")
def test_without_a_key_the_local_model_is_used_and_with_one_openai() -> None:
    assert open_provider(environ={}).kind == "wordllama"
    with_key = open_provider(environ={"OPENAI_API_KEY": "k"})
    assert (with_key.kind, with_key.name, with_key.hosted) == ("openai", "text-embedding-3-small", True)
    chosen = open_provider(environ={"OPENAI_API_KEY": "k", "UNSTUCK_MEMORY_EMBEDDINGS": "wordllama"})
    assert (chosen.kind, chosen.hosted) == ("wordllama", False)


@pytest.mark.parametrize("key", [{}, {"OPENAI_API_KEY": "k"}])
def test_the_mock_is_used_only_if_it_is_named(key: dict[str, str]) -> None:
    assert open_provider("mock", key).name == "mock"
    assert open_provider(None, key | {"UNSTUCK_MEMORY_EMBEDDINGS": "mock"}).kind == "mock"
    assert open_provider(None, key | {"UNSTUCK_MEMORY_EMBEDDINGS": " "}).kind != "mock"


def test_a_folder_is_named_by_its_path(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path / "model")
    provider = open_provider(f"folder:{tmp_path}/model", {})
    assert (provider.kind, provider.hosted, provider.name[:6]) == ("folder", False, "model@")


def test_a_server_of_ones_own_needs_no_key() -> None:
    provider = open_provider(
        "openai",
        {"OPENAI_BASE_URL": "http://localhost:11434/v1", "OPENAI_EMBEDDING_MODEL": "nomic-embed-text"},
    )
    assert provider.name == "nomic-embed-text"


@pytest.mark.parametrize(
    ("spec", "environ", "message"),
    [
        (
            "word2vec",
            {},
            "UNSTUCK_MEMORY_EMBEDDINGS is 'word2vec': it must be wordllama, folder:/path, openai or mock",
        ),
        ("folder:", {}, "UNSTUCK_MEMORY_EMBEDDINGS is 'folder:': it must be"),
        ("mock:64", {}, "UNSTUCK_MEMORY_EMBEDDINGS is 'mock:64': it must be"),
        ("folder:/nowhere", {}, "/nowhere has no model.safetensors: name a folder with"),
        (
            "openai",
            {},
            "OPENAI_API_KEY is not set: set it, or OPENAI_BASE_URL, or UNSTUCK_MEMORY_EMBEDDINGS=wordllama",
        ),
        (
            "openai",
            {"OPENAI_BASE_URL": "localhost:11434"},
            "OPENAI_BASE_URL is not a usable URL: it must be http://",
        ),
        (
            "openai",
            {"OPENAI_BASE_URL": "http://[::1/v1"},
            "OPENAI_BASE_URL is not a usable URL: it must be http://",
        ),
        ("openai", {"OPENAI_BASE_URL": "https://me:s3cret@host/v1"}, "put the key into OPENAI_API_KEY"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(spec: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_provider(spec, environ)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def python(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def test_nothing_heavy_is_imported_before_a_provider_is_used() -> None:
    opened = """
import asyncio, sys
from unstuck_memory.embeddings.providers import open_provider
providers = [open_provider("wordllama"), open_provider("openai", {"OPENAI_API_KEY": "k"}), open_provider("mock")]
names = [provider.name for provider in providers]
model = asyncio.run(providers[0].model())
assert model.dimension == 256
print({"openai", "tokenizers", "safetensors", "wordllama", "requests", "httpx", "httpx2"} & sys.modules.keys())
"""
    assert python(opened) == "set()"


def test_local_models_work_where_no_socket_can_be_opened(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path)
    offline = f"""
import asyncio, socket, sys
loop = asyncio.new_event_loop()  # it has a pair of sockets of its own
def refused(*_):
    raise AssertionError("a local model asked the network")
socket.socket = socket.create_connection = socket.getaddrinfo = refused
sys.addaudithook(lambda event, args: refused() if event in ("socket.connect", "socket.getaddrinfo") else None)
from unstuck_memory.embeddings.providers import open_provider
for spec in ("wordllama", "folder:{tmp_path}", "mock"):
    provider = open_provider(spec, {{}})
    provider.pieces("Ann: ", "likes tea " * 1000)
    print(len(loop.run_until_complete(provider.embed(["ann likes tea"]))))
loop.close()
assert "wordllama" not in sys.modules
"""
    assert python(offline).split() == ["1", "1", "1"]


def test_products_of_matrices_use_one_thread_once_a_folder_is_loaded(tmp_path: Path) -> None:
    """Threads that help would add to the time of the process and not to that of this thread."""
    write_tiny_bert(tmp_path)
    product = f"""
import asyncio, time
import numpy as np
from unstuck_memory.embeddings.providers import open_provider
asyncio.run(open_provider("folder:{tmp_path}", {{}}).model())
matrix = np.ones((1200, 1200), np.float32)
process, thread = time.process_time(), time.thread_time()
for _ in range(5):
    matrix @ matrix
print((time.process_time() - process) / (time.thread_time() - thread))
"""
    assert float(python(product)) < 1.3


class Slow:
    """A model that computes its second batch when the test lets it."""

    model = Model("slow", 2)
    window: Window = bytes_window(100)

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.batch = 0

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], NDArray[np.float32]]]:
        for self.batch in range(len(texts)):
            yield [self.batch], np.ones((1, 2), np.float32)
            self.began.set()
            self.go_on.wait()


async def test_the_event_loop_goes_on_while_a_local_model_computes() -> None:
    slow = Slow()
    embedding = asyncio.create_task(
        LocalProvider("slow", lambda: "slow", lambda _: slow).embed(["one", "two"])
    )
    while not slow.began.is_set():
        await asyncio.sleep(0.01)
    assert not embedding.done()
    slow.go_on.set()
    assert (await embedding).shape == (2, 2)


def test_a_cancelled_call_computes_no_further_batch() -> None:
    slow = Slow()

    async def cancelled() -> None:
        embedding = asyncio.create_task(
            LocalProvider("slow", lambda: "slow", lambda _: slow).embed(["text"] * 9)
        )
        while not slow.began.is_set():
            await asyncio.sleep(0.01)
        embedding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await embedding
        slow.go_on.set()

    asyncio.run(cancelled())  # which waits for its threads
    assert slow.batch == 1


async def test_a_model_is_loaded_once_by_however_many_tasks_and_threads() -> None:
    loads: list[str] = []
    another = threading.Event()

    def load(name: str) -> Slow:
        if loads:
            another.set()
        loads.append(name)
        another.wait(0.3)  # the time that others would need to begin, too
        slow = Slow()
        slow.go_on.set()
        return slow

    provider = LocalProvider("slow", lambda: "slow", load)
    await asyncio.gather(*(provider.embed(["text"]) for _ in range(8)), *(provider.model() for _ in range(8)))
    assert loads == ["slow"]


MAKERS: dict[str, Callable[[Path], Provider]] = {
    "wordllama": lambda _: open_provider("wordllama", {}),
    "mock": lambda _: open_provider("mock", {}),
    "folder": lambda path: open_provider(f"folder:{path}", {}),
}


@pytest.mark.parametrize("kind", MAKERS)
async def test_local_providers_keep_the_promises_of_the_protocol(tmp_path: Path, kind: str) -> None:
    write_tiny_bert(tmp_path)
    provider = MAKERS[kind](tmp_path)
    model = await provider.model()
    assert (provider.kind, provider.name, provider.hosted) == (kind, model.name, False)
    texts = ["ann likes tea", "bob likes coffee", "ann", "the garden", "?"]
    vectors = await provider.embed(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, model.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors, await MAKERS[kind](tmp_path).embed(texts))
    assert (await provider.embed([])).shape == (0, model.dimension)
    await provider.aclose()


async def test_the_mock_puts_texts_that_share_words_near_each_other() -> None:
    vectors = await open_provider("mock", {}).embed(
        ["Ann likes green tea", "green TEA: who likes it?", "bob has a dog"]
    )
    assert vectors[0] @ vectors[1] > 0.5 > abs(vectors[0] @ vectors[2])


def test_the_names_of_hosted_models_do_not_depend_on_the_server() -> None:
    names = {
        OpenAIProvider("k", base_url=url).name for url in ("https://api.openai.com/v1", "http://proxy/v1")
    }
    assert names == {"text-embedding-3-small"}
