"""The site of the documentation: every link leads somewhere, every public name is in the reference, and no other host is asked."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.folders import ROOT

import unstuck

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Links(HTMLParser):
    """What a page loads, what it links to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in {"id", "name"}:
                self.anchors.add(value)
            if (tag, name) in LOADED and dict(attrs).get("rel") != "canonical":
                self.loads.append(value)
            if (tag, name) == ("a", "href"):
                self.links.append(value)


pytestmark = pytest.mark.slow  # the site does not depend on the Python that builds it


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_link_of_the_site_leads_to_a_page_and_an_anchor_of_it(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 25

    dead = [
        f"{page.relative_to(site)}: {link}"
        for page, found in pages.items()
        if page.name != "404.html"  # its links are those of the host's root
        for link in found.links
        if not (address := urlsplit(link)).scheme
        and (
            (target := (page.parent / unquote(address.path)).resolve() if address.path else page) not in pages
            or (address.fragment and unquote(address.fragment) not in pages[target].anchors)
        )
    ]
    assert dead == []


def test_no_page_of_the_site_asks_another_host_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert [loaded for loaded in Links(page).loads if "//" in loaded] == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?https?:", style.read_text()) == [], style
    assert (site / "search/search_index.js").read_text().startswith("var __index = "), (
        "search in pages opened as files"
    )


def test_the_reference_has_every_public_name_once_with_its_docstring(site: Path) -> None:
    named = re.findall(r"^::: unstuck\.(\w+)$", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(unstuck.__all__)

    anchors = Links(site / "reference.html").anchors
    assert [name for name in unstuck.__all__ if f"unstuck.{name}" not in anchors] == []
