"""Checks what no linter does: file sizes, and links in the documentation."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = {"src": 400, "tests": 450, "tools": 300, "bench": 300, "protocol": 300, "chaos": 300, "apps": 400}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def tracked(*suffixes: str) -> list[Path]:
    """The project's files, also those that are not committed yet."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [ROOT / name for name in names if name.endswith(suffixes) and (ROOT / name).exists()]


def too_long(file: Path) -> str | None:
    name = file.relative_to(ROOT)
    limit = LIMITS["tests" if "tests" in name.parts else name.parts[0]] if name.parts[0] in LIMITS else None
    lines = len(file.read_text().splitlines())
    return f"{file.relative_to(ROOT)}: {lines} lines, at most {limit}" if limit and lines > limit else None


def dead_links(page: Path) -> list[str]:
    links = LINK.findall(page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    return [
        f"{page.relative_to(ROOT)}: {link} leads nowhere"
        for link in local
        if not (page.parent / link).exists()
    ]


complaints = [
    said for file in tracked(".py", ".sql", ".lua", ".cypher", ".mjs", ".pml") if (said := too_long(file))
]
complaints += [said for page in tracked(".md") for said in dead_links(page)]
print("\n".join(complaints) or "sizes and links are fine")
sys.exit(1 if complaints else 0)
