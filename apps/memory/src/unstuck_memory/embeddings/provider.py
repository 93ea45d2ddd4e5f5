"""What makes vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unstuck_memory.vectors import Model


class Provider(Protocol):
    """A model, hosted or local.

    Nothing heavy is imported, loaded or connected before the first use.
    """

    kind: str
    """The word that selects it: ``wordllama``, ``folder``, ``openai``, ``mock``."""
    hosted: bool
    """Whether a call is a request to somebody who counts them."""

    @property
    def name(self) -> str:
        """The model's name, as :meth:`model` gives it; known without a request, from settings and files alone."""
        ...

    async def model(self) -> Model:
        """Name and dimension. A hosted model whose dimension is not known is asked once."""
        ...

    def pieces(self, lead: str, text: str) -> list[str]:
        """The text behind its lead, in as many pieces as the model's window needs; each piece begins with the lead."""
        ...

    def cut(self, text: str) -> str:
        """As much of the text as the model's window takes."""
        ...

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of unit length for each text, in order.

        A wrong number of rows, a wrong dimension or a value that is not finite raises ``unstuck.Permanent``. Errors of the network
        are raised as the provider's own client raises them, so that ``unstuck.classify`` knows them; nothing is tried again here.
        """
        ...

    async def aclose(self) -> None: ...
