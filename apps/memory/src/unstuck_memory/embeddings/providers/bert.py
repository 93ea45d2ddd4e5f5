"""The forward pass of BERT, in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]
Pooling: TypeAlias = Literal["mean", "cls", "max"]

# Abramowitz and Stegun 7.1.26: the error of erf is below 1.5e-7, about that of float32.
_P = np.float32(0.3275911)
_A = tuple(map(np.float32, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)))
_MASKED = np.float32(-1e9)


class Shape(Struct, frozen=True, kw_only=True):
    """What ``config.json`` says of the model, as far as the forward pass needs it."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    layer_norm_eps: float = 1e-12


class Bert:
    """``tensors`` are float32 and have the names of the ``bert`` models of transformers."""

    def __init__(self, shape: Shape, tensors: Mapping[str, Array]) -> None:
        self._shape = shape
        get = tensors.__getitem__
        positions, types = (
            get("embeddings.position_embeddings.weight"),
            get("embeddings.token_type_embeddings.weight"),
        )
        self._words = get("embeddings.word_embeddings.weight")
        self._positions = positions + types[0]  # there is one sentence in each text
        self._norm = _norm(tensors, "embeddings.LayerNorm")
        self._layers = [
            _Layer(shape, tensors, f"encoder.layer.{number}") for number in range(shape.num_hidden_layers)
        ]

    def __call__(self, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> Array:
        """The last hidden state of each token; ``mask`` is False for padding."""
        count, length = ids.shape
        hidden = (self._words[ids] + self._positions[:length]).reshape(count * length, -1)
        hidden = _normalized(hidden, self._norm, self._shape.layer_norm_eps)
        unseen = np.where(mask, np.float32(0), _MASKED)[:, None, None, :]
        for layer in self._layers:
            hidden = layer(hidden, unseen)
        return hidden.reshape(count, length, -1)


def pooled(hidden: Array, mask: NDArray[np.bool_], how: Pooling) -> Array:
    """One vector for each text."""
    if how == "cls":
        return hidden[:, 0]
    if how == "max":
        return np.asarray(np.where(mask[:, :, None], hidden, -np.inf).max(axis=1))
    weights = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)
    return np.asarray((weights[:, None, :] @ hidden)[:, 0])


class _Layer:
    def __init__(self, shape: Shape, tensors: Mapping[str, Array], name: str) -> None:
        self._heads = shape.num_attention_heads
        self._size = shape.hidden_size // shape.num_attention_heads
        self._eps = shape.layer_norm_eps
        query, key, value = (
            _linear(tensors, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        scale = np.float32(self._size**-0.5)
        self._three = (
            np.concatenate([query[0] * scale, key[0], value[0]], axis=1),
            np.concatenate([query[1] * scale, key[1], value[1]]),
        )
        self._out = _linear(tensors, f"{name}.attention.output.dense")
        self._out_norm = _norm(tensors, f"{name}.attention.output.LayerNorm")
        self._up = _linear(tensors, f"{name}.intermediate.dense")
        self._down = _linear(tensors, f"{name}.output.dense")
        self._down_norm = _norm(tensors, f"{name}.output.LayerNorm")

    def __call__(self, hidden: Array, unseen: Array) -> Array:
        attended = _applied(self._attention(hidden, unseen), self._out)
        attended += hidden
        attended = _normalized(attended, self._out_norm, self._eps)
        result = _applied(_gelu(_applied(attended, self._up)), self._down)
        result += attended
        return _normalized(result, self._down_norm, self._eps)

    def _attention(self, hidden: Array, unseen: Array) -> Array:
        count = unseen.shape[0]
        three = _applied(hidden, self._three).reshape(count, -1, 3, self._heads, self._size)
        query, key, value = three.transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(2, 3)
        scores += unseen
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.asarray((scores @ value).swapaxes(1, 2).reshape(hidden.shape))


def _linear(tensors: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    return np.ascontiguousarray(tensors[f"{name}.weight"].T), tensors[f"{name}.bias"]


def _norm(tensors: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _applied(hidden: Array, linear: tuple[Array, Array]) -> Array:
    result = hidden @ linear[0]
    result += linear[1]
    return result


def _normalized(hidden: Array, norm: tuple[Array, Array], eps: float) -> Array:
    hidden -= hidden.mean(axis=-1, keepdims=True)
    variance = np.einsum("td,td->t", hidden, hidden)[:, None] / np.float32(hidden.shape[-1])
    hidden /= np.sqrt(variance + np.float32(eps))
    hidden *= norm[0]
    hidden += norm[1]
    return hidden


def _gelu(x: Array) -> Array:
    """x · (1 + erf(x / √2)) / 2; numpy has no erf."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + _P * z)
    polynomial = np.full_like(t, _A[4])
    for factor in reversed(_A[:4]):
        polynomial *= t
        polynomial += factor
    tail = polynomial * t * np.exp(-z * z)  # 1 - erf(z)
    return np.asarray(np.where(x < 0, tail, 2 - tail) * x * np.float32(0.5))
