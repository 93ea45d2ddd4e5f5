"""The default provider gives the vectors of wordllama from the files in its wheel, without its package and without a network."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from unstuck_memory.embeddings.providers.wordllama import TOKENIZER, WEIGHTS, files, open_wordllama

pytestmark = pytest.mark.anyio

TEXTS = [
    "Ann likes tea",
    "The migration failed: lock timeout.",
    "Ünïcode 東京 🚀",
    "one " * 400,
    " spaces  ",
    "x",
]
PACKAGE = """
import sys, warnings
from pathlib import Path
import numpy as np
warnings.simplefilter("ignore")
import wordllama
model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
np.save(sys.argv[1], model.embed(sys.argv[2:], norm=True))
"""


async def test_the_vectors_are_those_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", PACKAGE, tmp_path / "vectors.npy", *TEXTS], check=True
    )  # it sets up logging
    vectors = await open_wordllama().embed(TEXTS)
    np.testing.assert_allclose(vectors, np.load(tmp_path / "vectors.npy"), atol=1e-6)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 256)


def test_the_wheel_has_the_weights_that_the_models_name_stands_for() -> None:
    digests = [sha256((files() / name).read_bytes()).hexdigest()[:16] for name in (WEIGHTS, TOKENIZER)]
    assert digests == ["64b47a2dc493cb8e", "93248f2a9ec36c7b"]
    assert open_wordllama().name == "wordllama-l2-supercat-256"


async def test_texts_of_a_like_meaning_are_near_each_other() -> None:
    vectors = await open_wordllama().embed(
        ["The cat sleeps on the sofa", "A kitten naps on the couch", "Inflation rose in March"]
    )
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > far + 0.2


async def test_many_texts_come_back_in_order() -> None:
    provider = open_wordllama()
    texts = [f"observation number {number}" for number in range(600)]
    vectors = await provider.embed(texts)
    np.testing.assert_allclose(
        vectors[[0, 255, 256, 599]], await provider.embed([texts[0], texts[255], texts[256], texts[599]])
    )
    assert (await provider.embed([])).shape == (0, 256)


def test_long_texts_are_cut_and_split_by_the_models_own_tokens() -> None:
    provider = open_wordllama()
    text = "The quick brown fox jumps over the lazy dog. " * 200
    assert len(provider.cut(text)) > 900  # more than a token for each byte would leave
    pieces = provider.pieces("Ann: ", text)
    assert 7 < len(pieces) < 12
    assert all(piece.endswith("dog.") for piece in pieces)
