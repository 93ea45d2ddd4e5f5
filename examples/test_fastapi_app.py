"""Tests of the web application and its jobs: no server, no worker process.

pytest test_fastapi_app.py
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from fastapi.testclient import TestClient

os.environ["DATABASE_URL"] = f"sqlite:///{mkdtemp()}/shop.db"

from fastapi_app import Base, app, engine, web

from unstuck.testing import SyncInline, inline


@pytest.fixture(autouse=True)
def jobs() -> Iterator[SyncInline]:
    with inline(app) as jobs:  # an empty store of its own, where enqueue_in takes any connection
        yield jobs


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(web) as client:
        yield client
    Base.metadata.drop_all(engine)
    engine.dispose()
    Path(str(engine.url.database)).unlink()


def test_an_order_is_confirmed(jobs: SyncInline, client: TestClient) -> None:
    added = client.post("/orders", json={"email": "ann@example.org"}).json()
    assert client.get("/orders").json() == [{"email": "ann@example.org", "confirmed": False}]

    jobs.run()

    assert jobs.jobs.get(added["job"]).result == "confirmed to ann@example.org"
    assert client.get("/orders").json() == [{"email": "ann@example.org", "confirmed": True}]


def test_an_order_without_an_address_is_refused(client: TestClient) -> None:
    assert client.post("/orders", json={"email": "nobody"}).status_code == 400
    assert client.get("/orders").json() == []
