"""What every graph demands of vectors before it writes any."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unstuck_memory.errors import InvalidInput
from unstuck_memory.vectors import Embedding, Model, Vector

_TOLERANCE = 1e-3  # models normalize in single precision, some in half


def refuse_wrong_vectors(embeddings: Iterable[Embedding]) -> None:
    """Raise ``InvalidInput`` unless each vector is float32, finite, of unit length and of its model's dimension."""
    for embedding in embeddings:
        for number, chunk in enumerate(embedding.chunks):
            problem = _problem(embedding.model, chunk.vector)
            if problem:
                raise InvalidInput(
                    f"vector {number} of entity {embedding.uid} by model {embedding.model.name!r} {problem}: nothing was "
                    "written; check what the provider returns"
                )


def _problem(model: Model, vector: Vector) -> str | None:
    if vector.dtype != np.float32:
        return f"is of {vector.dtype}, float32 is needed"
    if vector.shape != (model.dimension,):
        return f"has the shape {vector.shape}, ({model.dimension},) is needed"
    length = float(np.linalg.norm(vector))
    if not abs(length - 1.0) <= _TOLERANCE:  # false for NaN, too
        return f"has the length {length:.4g}, 1 is needed, all numbers finite"
    return None
