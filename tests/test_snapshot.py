"""Random calls have the same result with and without C; the comparison finds differences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import snapshot

PROGRAM = Path(__file__).with_name("snapshot.py")
CALLS = 130


def test_both_roads_return_the_same_texts_fixes_bytes_and_pictures(tmp_path):
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", PROGRAM, *words]
        return subprocess.run(command, capture_output=True, text=True)

    assert run("write", tmp_path / "calls.gz", str(CALLS)).returncode == 0
    rows = list(snapshot._read(tmp_path / "calls.gz"))
    kinds = {key for row in rows for key in row}
    assert {"fixed", "encoded", "html", "shared", "tile", "mirror", "explained", "command"} <= kinds
    compared = run("compare", tmp_path / "calls.gz", "pure")
    assert compared.stdout == "0 differences; 0 calls are missing\n", compared.stderr


def test_a_change_is_found_and_named():
    row = {"seed": 3, "text": "refused", "fixed": ["box_sizes=(8, 8)"]}
    assert list(snapshot.differences(row, dict(row))) == []
    (found,) = snapshot.differences(row, {"seed": 3, "text": "refused", "fixed": None})
    assert found.startswith("call 3, fixed:\n  was [")
