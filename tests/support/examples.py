"""Drives one of the examples as its users would: requests to the web application, then a worker beside it."""

import json
import os
import subprocess
import sys
from typing import Any

import psycopg

from support.folders import ROOT

EXAMPLES = ROOT / "examples"
PLACE = {
    "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Each gives ``call(method, email) -> (status, body)``; a process of its own, as each has settings for a whole process.
CLIENTS = {
    "fastapi_app": """
from fastapi.testclient import TestClient
from fastapi_app import web
with TestClient(web) as client:
    def call(method, **said):
        answer = client.request(method, "/orders", **({"json": said} if said else {}))
        return answer.status_code, answer.json()
    play(call)
""",
    "flask_app": """
from flask_app import web
def call(method, **said):
    answer = web.test_client().open("/orders", method=method, **({"json": said} if said else {}))
    return answer.status_code, answer.json
play(call)
""",
    "django_app": """
import django_app
from django.test import Client
def call(method, **said):
    answer = Client().generic(method, "/orders", json.dumps(said), content_type="application/json")
    return answer.status_code, json.loads(answer.content) if answer.status_code < 400 else None
play(call)
""",
}
SCRIPT = """
import json, subprocess, sys
def play(call):
    added = call("POST", email="ann@example.org")
    refused = call("POST", email="nobody")
    before = call("GET")
    worker = subprocess.run([sys.executable, "-m", "unstuck", "worker", f"{sys.argv[1]}:app", "--burst"])
    print(json.dumps([added, refused, before, worker.returncode, call("GET")]))
"""


def drive(example: str, url: str) -> None:
    """What is committed is there, and confirmed by the worker; what raised left neither order nor job."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT + CLIENTS[example], example],
        cwd=EXAMPLES,
        env=os.environ | PLACE | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (added, said), (refused, _), (_, before), worker, (_, after) = json.loads(done.stdout)

    assert (added, refused, worker) == (201, 400, 0), done.stderr
    assert before == [{"email": "ann@example.org", "confirmed": False}]
    assert after == [{"email": "ann@example.org", "confirmed": True}]
    assert _jobs(url) == [(said["job"], "completed", 1)]


def _jobs(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT id, status, attempt_count FROM unstuck.jobs").fetchall()
