"""What the memory raises. Every message is one line: what, the allowed range, the next step."""

from __future__ import annotations


class UnstuckMemoryError(Exception):
    """The parent of all errors of the memory."""


class InvalidInput(UnstuckMemoryError, ValueError):
    """An argument is out of its range. Nothing was written."""


class NotFound(UnstuckMemoryError, LookupError):
    """There is no such entity or relation."""


class GraphUnavailable(UnstuckMemoryError):
    """The graph could not be reached, or was locked for too long: try again later."""


class GraphDamaged(UnstuckMemoryError):
    """The graph cannot be used as it is: a damaged file, a schema of a newer release."""


class SettingsError(UnstuckMemoryError):
    """A setting or a variable is missing or out of its range."""
