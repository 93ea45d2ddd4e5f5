"""What a provider answered, as vectors of unit length; or why it cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstuck import Permanent
from unstuck_memory.vectors import Model

BAD_VECTORS = "bad_vectors"


def unit_rows(found: Sequence[Any] | NDArray[Any], count: int, model: Model) -> NDArray[np.float32]:
    """One row for each text; ``Permanent`` if the number, the dimension or a value is wrong."""
    if len(found) != count:
        raise _refused(model, f"answered {len(found)} vectors for {count} texts", "one for each")
    wrong = {len(vector) for vector in found} - {model.dimension}
    if wrong:
        raise _refused(model, f"answered a vector of {wrong.pop()} numbers", f"{model.dimension} each time")
    rows = np.asarray(found, dtype=np.float64).reshape(count, model.dimension)  # None is NaN
    if not np.isfinite(rows).all():
        raise _refused(model, "answered a vector with NaN or infinity", "finite numbers")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(length).all() and length.all()):
        raise _refused(model, "answered a vector without a direction", "a length above 0")
    return np.asarray(rows / length, dtype=np.float32)


def _refused(model: Model, what: str, allowed: str) -> Permanent:
    return Permanent(
        f"model {model.name} {what}: it must be {allowed}; look at its server or files", code=BAD_VECTORS
    )
