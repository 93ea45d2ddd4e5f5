"""Providers of embeddings, and which of them is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from unstuck import env_text
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.providers.folder import open_folder
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.providers.openai import BASE_URL, MODEL, OpenAIProvider
from unstuck_memory.embeddings.providers.wordllama import open_wordllama
from unstuck_memory.errors import SettingsError

VARIABLE = "UNSTUCK_MEMORY_EMBEDDINGS"


def open_provider(spec: str | None = None, environ: Mapping[str, str] = os.environ) -> Provider:
    """The provider that ``spec`` names, or else ``UNSTUCK_MEMORY_EMBEDDINGS``: wordllama, folder:/path, openai or mock.

    Without either it is openai if there is an OPENAI_API_KEY, and wordllama otherwise. Nothing is loaded yet.
    """
    key = env_text(environ, "OPENAI_API_KEY")
    spec = spec or env_text(environ, VARIABLE) or ("openai" if key else "wordllama")
    kind, _, path = spec.partition(":")
    if spec == "wordllama":
        return open_wordllama()
    if kind == "folder" and path:
        return open_folder(Path(path).expanduser())
    if spec == "openai":
        return _openai(key, environ)
    if spec == "mock":
        return MockProvider()
    raise SettingsError(f"{VARIABLE} is {spec!r:.60}: it must be wordllama, folder:/path, openai or mock")


def _openai(key: str | None, environ: Mapping[str, str]) -> OpenAIProvider:
    url = env_text(environ, "OPENAI_BASE_URL")
    if key is None and url is None:
        raise SettingsError(f"OPENAI_API_KEY is not set: set it, or OPENAI_BASE_URL, or {VARIABLE}=wordllama")
    if find_spec("openai") is None:
        raise SettingsError(
            f"openai is not installed: install unstuck-memory[openai], or set {VARIABLE}=wordllama"
        )
    model = env_text(environ, "OPENAI_EMBEDDING_MODEL") or MODEL
    return OpenAIProvider(key, base_url=_checked(url) if url else BASE_URL, model=model)


def _checked(url: str) -> str:
    """Not in the message: what the URL is, because it may have a password."""
    allowed = "it must be http:// or https:// with a host, for example http://localhost:11434/v1"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SettingsError(f"OPENAI_BASE_URL is not a usable URL: {allowed}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(f"OPENAI_BASE_URL is not a usable URL: {allowed}")
    if parts.username or parts.password or parts.query:
        raise SettingsError("OPENAI_BASE_URL has a user, password or query: put the key into OPENAI_API_KEY")
    return url.rstrip("/")
