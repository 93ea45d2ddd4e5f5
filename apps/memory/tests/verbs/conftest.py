"""A command for each test, which leaves the environment as it was; and a provider over HTTP."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_memory.embedding_server import EmbeddingServer
from support_memory.verbs import ANN, LIVES, LYON, Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    before = dict(os.environ)
    yield Command(tmp_path)
    before["PYTEST_CURRENT_TEST"] = os.environ["PYTEST_CURRENT_TEST"]  # it names the phase
    assert dict(os.environ) == before


@pytest.fixture
def lived_in(command: Command) -> Command:
    """The same with two entities and a relation."""
    command.store(ANN, LYON, LIVES)
    return command


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server
