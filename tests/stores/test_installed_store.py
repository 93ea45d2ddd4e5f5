"""Stores that other packages bring: found by the scheme of a URL, among entry points."""

from pathlib import Path

import pytest

from unstuck import ConfigError, open_store

MODULE = """
class Mine:
    def __init__(self, url):
        self.url = url
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are installed in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, package: str, *, scheme: str = "mine", value: str = "") -> None:
    (site / f"{package}.py").write_text(MODULE)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[unstuck.stores]\n{scheme} = {value or package + ':Mine'}\n")


def test_a_package_brings_the_store_of_its_scheme(site: Path) -> None:
    install(site, "a_store")

    store = open_store("mine://host/x?y=1")

    assert (type(store).__name__, vars(store)) == ("Mine", {"url": "mine://host/x?y=1"})


def test_the_error_about_an_unknown_scheme_names_all_that_are_known(site: Path) -> None:
    install(site, "a_store_of_files")

    with pytest.raises(
        ConfigError, match=r"'yours:///x' is not known: use sqlite:///.*, mine://…; .*'unstuck.stores'"
    ):
        open_store("yours:///x")


def test_two_packages_for_one_scheme_are_named(site: Path) -> None:
    install(site, "one_store")
    install(site, "other_store")

    with pytest.raises(
        ConfigError, match=r"claimed by several packages \(one_store, other_store\): keep one"
    ):
        open_store("mine:///x")


@pytest.mark.parametrize("value", ["not_there_at_all:Mine", "a_broken_store:NotThere"])
def test_a_package_that_cannot_be_imported_is_named(site: Path, value: str) -> None:
    install(site, "a_broken_store", value=value)

    with pytest.raises(ConfigError, match=f"is {value}, which cannot be imported: "):
        open_store("mine:///x")


def test_a_package_takes_no_scheme_of_ours(site: Path) -> None:
    install(site, "a_thief", scheme="sqlite")

    assert type(open_store("sqlite:///jobs.db")).__name__ == "SQLiteStore"


def test_a_password_in_an_unknown_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as told:
        open_store("yours://ann:hunter2@host/x")

    assert "hunter2" not in str(told.value)
