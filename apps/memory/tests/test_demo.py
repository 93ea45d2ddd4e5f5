"""The demo: no vector is missing although a worker is killed."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "demo.py"


def test_the_demo_ends_with_all_vectors_and_finds_by_meaning() -> None:
    answer = subprocess.run(
        [sys.executable, str(DEMO), "--entities", "400"], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "is killed in the middle of its work" in answer.stdout
    assert "   400 of 400 entities have their vectors" in answer.stdout
    assert "every entity has its vectors, and 0 jobs failed" in answer.stdout
    [first] = [line for line in answer.stdout.splitlines() if "veterinarian" in line]
    assert "Hana 7" in first
