"""What interfaces ask of a store's URL without opening the store."""

from __future__ import annotations

from unstuck.stores import open_store
from unstuck.stores.shared.urls import absolute_url, is_in_memory


def store_url(url: str) -> str:
    """The URL that means this store wherever the process goes; a wrong URL is a ConfigError now."""
    open_store(url)
    return absolute_url(url)


def same_store(one: str, other: str) -> bool:
    return absolute_url(one) == absolute_url(other)


def ends_with_process(url: str) -> bool:
    """Whether the store is gone when the process that opened it ends."""
    return is_in_memory(url)
