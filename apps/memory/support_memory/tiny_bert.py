"""A folder with a small random BERT, in the layout of transformers and sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

HIDDEN, HEADS, LAYERS, INNER, POSITIONS = 12, 3, 2, 20, 40
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_WORDS = ("ann", "likes", "tea", "and", "bob", "green", "coffee", "in", "the", "garden", "of", "house", "##s")
VOCABULARY = {
    word: number for number, word in enumerate((*_SPECIAL, *_WORDS, *".,:()", *map(chr, range(97, 123))))
}


def write_tiny_bert(
    folder: Path, *, seed: int = 1, prefix: str = "", config: dict[str, Any] | None = None
) -> dict[str, NDArray[np.float32]]:
    """``config`` replaces values of ``config.json``. Answers the tensors, without the prefix that the file's names get."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(np.random.default_rng(seed))
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    _tokenizer().save(str(folder / "tokenizer.json"))
    values = {
        "model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "layer_norm_eps": 1e-12,
        "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "vocab_size": len(VOCABULARY),
    }  # fmt: skip
    write_json(folder / "config.json", values | (config or {}))
    return tensors


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def _tokenizer() -> Tokenizer:
    """It cuts and pads at 8 tokens, as files of real models do at 128."""
    tokenizer = Tokenizer(WordPiece(VOCABULARY, unk_token=_SPECIAL[1]))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    ends = [(word, VOCABULARY[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    return tokenizer


def _tensors(random: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **_norm("embeddings.LayerNorm"),
    }
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for part in ("query", "key", "value"):
            shapes |= _linear(f"{layer}.attention.self.{part}", HIDDEN, HIDDEN)
        shapes |= _linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        shapes |= _linear(f"{layer}.intermediate.dense", INNER, HIDDEN)
        shapes |= _linear(f"{layer}.output.dense", HIDDEN, INNER)
        shapes |= _norm(f"{layer}.attention.output.LayerNorm") | _norm(f"{layer}.output.LayerNorm")
    return {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def _linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
