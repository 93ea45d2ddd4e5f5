"""Keeps numpy's matrix products on one thread."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import numpy as np

_FOLDERS = ("../numpy.libs", ".dylibs")  # where numpy's wheels for Linux and macOS have their library
_NAMES = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads")


def one_thread() -> bool:
    """For the whole process, from now on: threads of several workers on busy cores wait for each other.

    False if this numpy is not a wheel with OpenBLAS; then OPENBLAS_NUM_THREADS=1 or its like must be set from outside.
    """
    for folder in _FOLDERS:
        for path in sorted((Path(np.__file__).parent / folder).glob("*openblas*")):
            with suppress(OSError):
                library = ctypes.CDLL(str(path))  # the one that numpy has loaded, not a second one
                for name in _NAMES:
                    if (set_threads := getattr(library, name, None)) is not None:
                        set_threads(1)
                        return True
    return False
