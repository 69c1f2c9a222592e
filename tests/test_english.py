"""The English of the repository: phrases that need a second reading stay rare.

A hit is a hint, so each folder may have a few. `ALLOWED` has the right uses that a pattern cannot
tell from wrong ones. A failure lists file, line and phrase; rewrite the sentence, not the word.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Hits for each thousand words of prose.
MOST_PER_THOUSAND = 0.5

#: A habit: its pattern, and a sentence that has it.
HABITS = json.loads(Path(__file__).with_name("english_habits.json").read_text("utf-8"))
#: Right uses of a phrase in a file, with the text around the phrase.
ALLOWED: dict[str, tuple[str, ...]] = {}
_PATTERNS = {
    name: re.compile(habit["pattern"], re.IGNORECASE | re.MULTILINE)
    for name, habit in HABITS.items()
}
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
#: From Python 3.12 on, the text of an f-string is a token of its own.
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_SUFFIXES = {".py", ".c", ".h", ".hpp", ".cu", ".cuh", ".js", ".css", ".cpp", ".md", ".ipynb"}
_ROOT = Path(__file__).parents[1]


def prose(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file with the line (in a notebook: the cell) at which it begins."""
    suffix = Path(name).suffix
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_text = token.type in _STRINGS and " " in token.string
            if is_text or token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    elif suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"]):
            source = "".join(cell["source"])
            is_text = cell["cell_type"] == "markdown"
            yield number, source if is_text else "\n".join(re.findall("#.*", source))
    elif suffix == ".md":
        yield 1, _CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    else:
        for comment in _C_COMMENT.finditer(text):
            yield text.count("\n", 0, comment.start()) + 1, comment[0]


def hits(name: str, text: str) -> tuple[list[str], int]:
    """Return the hits in a file, as lines of a report, and its words of prose."""
    found, words = [], 0
    for line, part in prose(name, text):
        words += len(part.split())
        for habit, pattern in _PATTERNS.items():
            for match in pattern.finditer(part):
                around = " ".join(part[max(0, match.start() - 30) : match.end() + 30].split())
                if not any(right in around for right in ALLOWED.get(Path(name).name, ())):
                    at = line + part.count("\n", 0, match.start())
                    found.append(f"{name}:{at}: {habit}: ...{around}...")
    return found, words


def files(folder: str) -> list[Path]:
    """Return the hand-written files of a top folder; the package may be installed elsewhere."""
    root = _ROOT / folder
    if root.is_file():
        return [root]
    if folder == "tma_dlpack":
        spec = importlib.util.find_spec(folder)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.suffix in _SUFFIXES
        and not {"golden", "_build", ".ipynb_checkpoints", "__pycache__"} & set(path.parts)
    ]


@pytest.mark.parametrize("folder", ["tma_dlpack", "notebooks", "tests", ".packaging", "README.md"])
def test_a_folder_is_in_english_that_needs_one_reading(folder):
    paths = files(folder)
    assert paths
    found, words = [], 0
    for path in paths:
        more, count = hits(str(path), path.read_text("utf-8"))
        found += more
        words += count
    assert len(found) <= MOST_PER_THOUSAND * words / 1000, "\n".join(found)


@pytest.mark.parametrize("name", HABITS)
def test_every_habit_is_found_in_comments_docstrings_and_text(name):
    sentence = HABITS[name]["found in"]
    written = {
        "a.py": f'"""{sentence}"""\n',
        "b.py": f"x = 1\n# {sentence}\n",
        "c.h": f"int x;\n// {sentence}\n",
    }
    if not sentence.startswith("What"):
        cells = [{"cell_type": "markdown", "source": [sentence]}]
        written |= {"d.md": sentence, "e.ipynb": json.dumps({"cells": cells})}
    for file, text in written.items():
        assert [hit for hit in hits(file, text)[0] if f": {name}: " in hit], file


def test_plain_sentences_and_code_are_no_hit():
    text = '"""Return the map, because the call is accepted."""\nx = 1  # bytes that it copies\n'
    assert ast.parse(text)
    assert hits("a.py", text) == ([], 13)
    assert hits("a.md", "```\n# beside\n```\n")[0] == []
