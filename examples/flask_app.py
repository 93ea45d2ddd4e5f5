"""Flask and psycopg: an order and the job that confirms it are stored together, or neither is.

DATABASE_URL=postgresql://user@host/shop flask --app flask_app:web run
DATABASE_URL=postgresql://user@host/shop unstuck worker flask_app:app
"""

import os

import psycopg
from flask import Flask, request
from flask.typing import ResponseReturnValue
from psycopg.rows import dict_row
from werkzeug.exceptions import BadRequest

from unstuck import Unstuck

URL = os.environ["DATABASE_URL"]
app = Unstuck(URL)
web = Flask(__name__)

with psycopg.connect(URL) as setup:
    setup.execute("SELECT pg_advisory_xact_lock(1)")  # web and worker may start at once
    setup.execute(
        "CREATE TABLE IF NOT EXISTS orders (number serial PRIMARY KEY, email text NOT NULL,"
        " confirmed boolean NOT NULL DEFAULT false)"
    )


@app.task(queue="mail")
def confirm(number: int) -> str:
    with psycopg.connect(URL) as connection:
        # Where a shop would send its letter.
        cursor = connection.execute(
            "UPDATE orders SET confirmed = true WHERE number = %s RETURNING email", [number]
        )
        [email] = cursor.fetchall()[0]
        return f"confirmed to {email}"


@web.post("/orders")
def add_order() -> ResponseReturnValue:
    email = str(request.get_json()["email"])
    with psycopg.connect(URL) as connection:  # commits at its end, or rolls back if something is raised
        cursor = connection.execute("INSERT INTO orders (email) VALUES (%s) RETURNING number", [email])
        [number] = cursor.fetchall()[0]
        [job] = app.enqueue_in_sync(connection, [confirm.call(number)])
        if "@" not in email:
            raise BadRequest("no address")  # undoes both
    return {"number": number, "job": job.id}, 201


@web.get("/orders")
def orders() -> ResponseReturnValue:
    with psycopg.connect(URL, row_factory=dict_row) as connection:
        return connection.execute("SELECT email, confirmed FROM orders ORDER BY number").fetchall()
