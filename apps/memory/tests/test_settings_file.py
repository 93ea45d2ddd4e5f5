"""The settings file: made at the first start, and overridden by the environment."""

from pathlib import Path

import pytest
from unstuck_memory import settings_file
from unstuck_memory.errors import SettingsError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path)}


def test_the_first_start_makes_a_file_with_fourteen_days_and_later_ones_leave_it(
    environ: dict[str, str],
) -> None:
    path = settings_file.make(environ)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["settings.toml"]
    settings_file.apply(environ)
    assert environ["EMBED_JOB_RETENTION_DAYS"] == "14"

    path.write_text('EMBED_JOB_RETENTION_DAYS = 7\nUNSTUCK_MEMORY_EMBEDDINGS = "mock"\n')
    settings_file.make(environ)
    environ["EMBED_JOB_RETENTION_DAYS"] = "30"
    settings_file.apply(environ)
    assert environ["EMBED_JOB_RETENTION_DAYS"] == "30"
    assert environ["UNSTUCK_MEMORY_EMBEDDINGS"] == "mock"


def test_without_a_file_nothing_is_set(environ: dict[str, str]) -> None:
    before = dict(environ)
    settings_file.apply(environ)
    assert environ == before


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("EMBED_JOB_RETENTION_DAYS 14", "is not valid TOML"),
        ("\ufeff\x00", "is not valid TOML"),
        ("EMBED_JOB_RETENTION = 14", "has 'EMBED_JOB_RETENTION'"),
        ("XDG_DATA_HOME = '/tmp'", "has 'XDG_DATA_HOME'"),
        ("EMBED_JOB_RETENTION_DAYS = true", "must be a text or a number"),
        ("EMBED_JOB_RETENTION_DAYS = [14]", "must be a text or a number"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(environ: dict[str, str], text: str, line: str) -> None:
    path = settings_file.make(environ)
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        settings_file.apply(environ)
    assert line in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
