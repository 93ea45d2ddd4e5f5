"""A backend for Django's own Tasks framework: ``BACKEND: "unstuck.contrib.django.UnstuckBackend"``.

Workers run them with ``DJANGO_SETTINGS_MODULE`` set: ``unstuck worker unstuck.contrib.django:app``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unstuck.contrib.django.backend import UnstuckBackend

if TYPE_CHECKING:
    from unstuck import Unstuck

    app: Unstuck

__all__ = ["UnstuckBackend", "app"]


def __getattr__(name: str) -> Any:
    """``app`` is made when it is asked for: it needs Django's settings, which an import alone must not."""
    if name != "app":
        raise AttributeError(f"module 'unstuck.contrib.django' has no attribute {name!r}")
    from unstuck.contrib.django.run import the_app

    return the_app()
