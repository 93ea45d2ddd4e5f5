"""The default model: a table of one vector for each token, whose weights are in the wheel of wordllama.

Only its files are read. Its package takes 28 MB and 0.2 seconds more, sets up the root logger, and asks the network for its tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unstuck_memory.embeddings.providers.local import LocalProvider
from unstuck_memory.embeddings.providers.windows import Window
from unstuck_memory.errors import SettingsError
from unstuck_memory.vectors import Model

TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
WEIGHTS = "weights/l2_supercat_256.safetensors"
_NAME, _DIMENSION = "wordllama-l2-supercat-256", 256
_WINDOW = 256
"""Tokens, as many as the texts had that it was trained on. It would take more, but a mean of many words is near to everything."""
_AT_ONCE = 256


def open_wordllama() -> LocalProvider:
    return LocalProvider("wordllama", lambda: _NAME, partial(_Table, files()), dimension=_DIMENSION)


def files() -> Path:
    """The folder of the installed package, which is not imported."""
    spec = find_spec("wordllama")
    if (
        spec is None
        or spec.origin is None
        or not (folder := Path(spec.origin).parent).joinpath(WEIGHTS).exists()
    ):
        raise SettingsError(f"wordllama has no {WEIGHTS}: install unstuck-memory with its dependencies")
    return folder


class _Table:
    def __init__(self, folder: Path, name: str) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._vectors = load_file(folder / WEIGHTS)["embedding.weight"].astype(np.float32)
        self.model = Model(name, self._vectors.shape[1])
        self.window = Window(_WINDOW, self._ends)

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], NDArray[np.float32]]]:
        for start in range(0, len(texts), _AT_ONCE):
            indexes = range(start, min(start + _AT_ONCE, len(texts)))
            # One by one: batches of this tokenizer start threads, which is slower for short texts and disturbs later forks.
            sums = [
                self._vectors[self._tokenizer.encode(texts[index], add_special_tokens=False).ids].sum(axis=0)
                for index in indexes
            ]
            yield indexes, np.stack(sums)

    def _ends(self, text: str) -> list[int]:
        return [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]
