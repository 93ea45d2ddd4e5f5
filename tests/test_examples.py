"""The examples are run as they lie there. Django's is among the tests of Django."""

import pytest
from support.examples import EXAMPLES, drive
from support.postgres import Postgres


@pytest.mark.slow
@pytest.mark.parametrize("example", ["fastapi_app", "flask_app"])
def test_an_order_and_its_job_are_stored_together_or_not_at_all(example: str, pg18: Postgres) -> None:
    url = pg18.create_database()

    drive(example, url)

    pg18.drop_database(url)


def test_an_example_is_short() -> None:
    lengths = {file.name: len(file.read_text().splitlines()) for file in EXAMPLES.glob("*.py")}

    assert lengths.keys() == {"django_app.py", "fastapi_app.py", "flask_app.py"}
    assert max(lengths.values()) <= 80, lengths
