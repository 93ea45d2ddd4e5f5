"""A model from a folder: ``model.safetensors``, ``tokenizer.json``, ``config.json``, of the BERT family.

The files of sentence-transformers are followed if they are there: window and pooling. Vectors are of unit length in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstuck_memory.embeddings.providers.bert import Bert, Pooling, Shape, pooled
from unstuck_memory.embeddings.providers.blas import one_thread
from unstuck_memory.embeddings.providers.local import LocalProvider
from unstuck_memory.embeddings.providers.windows import Window
from unstuck_memory.errors import SettingsError
from unstuck_memory.vectors import Model

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
MODULES, POOLING, TRANSFORMER = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean",  # the same direction
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_NAMED = 60
"""Characters of the folder's name in the model's name."""
_TOKENS_AT_ONCE = 1024
"""Tokens of a batch, with padding: more are not faster on one thread, and take more memory."""


class _Config(Shape, frozen=True, kw_only=True):
    max_position_embeddings: int
    model_type: str = "bert"
    hidden_act: str = "gelu"
    position_embedding_type: str = "absolute"


def open_folder(path: Path) -> LocalProvider:
    for name in (WEIGHTS, TOKENIZER, CONFIG):
        if not (path / name).is_file():
            raise SettingsError(
                f"{path} has no {name}: name a folder with {WEIGHTS}, {TOKENIZER} and {CONFIG}"
            )
    path = path.resolve()
    return LocalProvider("folder", partial(_name, path), partial(_load, path))


def _load(path: Path, name: str) -> _FolderModel:
    try:
        return _FolderModel(path, name)
    except SettingsError:
        raise
    except KeyError as error:
        raise SettingsError(
            f"{path / WEIGHTS} has no tensor {error}: it must be a BERT model of transformers"
        ) from None
    except Exception as error:  # tokenizers raises nothing narrower
        why = str(error).partition("\n")[0]
        raise SettingsError(f"{path} is not a model that can be read: {why}; copy it again") from error


class _FolderModel:
    def __init__(self, path: Path, name: str) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        one_thread()
        config = _config(path)
        self._pooling = _pooling(path)
        self._limit = _limit(path, config)
        self._bert = Bert(config, _float32(load_file(path / WEIGHTS)))
        self._tokenizer = Tokenizer.from_file(str(path / TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()  # the file's own is often shorter than the window
        special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self.window = Window(self._limit - special, self._ends)
        self.model = Model(name, config.hidden_size)

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], NDArray[np.float32]]]:
        """Texts of about the same length together."""
        ids = [self._ids(text) for text in texts]
        batch: list[int] = []
        for index in sorted(range(len(ids)), key=lambda index: len(ids[index])):
            if (len(batch) + 1) * len(ids[index]) > _TOKENS_AT_ONCE and batch:
                yield batch, self._vectors([ids[each] for each in batch])
                batch = []
            batch.append(index)
        if batch:
            yield batch, self._vectors([ids[each] for each in batch])

    def _vectors(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
        mask = np.zeros(ids.shape, np.bool_)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = True
        return pooled(self._bert(ids, mask), mask, self._pooling)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids if len(ids) <= self._limit else [*ids[: self._limit - 1], ids[-1]]  # which ends every text

    def _ends(self, text: str) -> list[int]:
        return [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]


def _config(path: Path) -> _Config:
    config = msgspec.json.decode((path / CONFIG).read_bytes(), type=_Config)
    asked = (config.model_type, config.hidden_act, config.position_embedding_type)
    if asked != (known := ("bert", "gelu", "absolute")):
        raise SettingsError(f"{path / CONFIG} asks for {', '.join(asked)}: it must be {', '.join(known)}")
    return config


def _pooling(path: Path) -> Pooling:
    modules = [module["type"].rpartition(".")[2] for module in _optional(path / MODULES) or []]
    if other := set(modules) - {"Transformer", "Pooling", "Normalize"}:
        raise SettingsError(
            f"{path / MODULES} asks for {min(other)}: it must be Transformer, Pooling, Normalize"
        )
    pooling = _optional(path / POOLING)
    if pooling is None:
        return "mean"
    chosen = [name for name, value in pooling.items() if name.startswith("pooling_mode") and value]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise SettingsError(
            f"{path / POOLING} asks for {' and '.join(chosen) or 'nothing'}: it must be one of {', '.join(_POOLINGS)}"
        )
    return _POOLINGS[chosen[0]]


def _limit(path: Path, config: _Config) -> int:
    transformer = _optional(path / TRANSFORMER) or {}
    return min(
        transformer.get("max_seq_length") or config.max_position_embeddings, config.max_position_embeddings
    )


def _optional(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes()) if path.is_file() else None


def _float32(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    return {name.removeprefix("bert."): np.asarray(tensor, np.float32) for name, tensor in tensors.items()}


def _name(path: Path) -> str:
    """The folder's, and a digest of all files that the vectors depend on, so that no two models are taken for one."""
    digest = sha256()
    for name in (WEIGHTS, TOKENIZER, CONFIG, MODULES, POOLING, TRANSFORMER):
        if (path / name).is_file():
            with (path / name).open("rb") as file:
                digest.update(file_digest(file, "sha256").digest())
    return f"{path.name[:_NAMED]}@{digest.hexdigest()[:12]}"
