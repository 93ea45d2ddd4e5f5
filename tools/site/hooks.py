"""What the site adds to the pages of docs/: README and other pages of the repository, and links that lead on the site where they can.

In the repository a link is a path. On the site it leads to the page that shows that file, or else to the file in the repository.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
REPOSITORY = "https://github.com/unstuck-jobs/unstuck/blob/main/"
ELSEWHERE = {  # pages of the site that are not in docs/
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "memory.md": "apps/memory/README.md",
    "protocol.md": "protocol/README.md",
    "chaos.md": "chaos/README.md",
    "benchmarks.md": "bench/README.md",
    "stores/sqlite.md": "src/unstuck/stores/sqlite/README.md",
    "stores/postgres.md": "src/unstuck/stores/postgres/README.md",
    "stores/redis.md": "src/unstuck/stores/redis/README.md",
    "stores/neo4j.md": "src/unstuck/stores/neo4j/README.md",
    "stores/foreign.md": "src/unstuck/stores/postgres/foreign/README.md",
}
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes it
    """Let each link lead on the site if its file is shown there."""
    here = page.file.src_uri
    source = ELSEWHERE.get(here, f"docs/{here}")
    pages = {shown: name for name, shown in ELSEWHERE.items()}

    def led(match: re.Match[str]) -> str:
        opening, link, anchor, closing = match[1], match[2], match[3] or "", match[4]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        shown = pages.get(target) or target.removeprefix("docs/")
        if target not in pages and not (target.startswith("docs/") and files.get_file_from_path(shown)):
            return f"{opening}{REPOSITORY}{target}{anchor}{closing}"
        return f"{opening}{posixpath.relpath(shown, posixpath.dirname(here) or '.')}{anchor}{closing}"

    texts = FENCE.split(markdown)  # links in code are code
    texts[::2] = [LINK.sub(led, text) for text in texts[::2]]
    return "".join(texts)
