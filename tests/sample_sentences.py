"""Draw random sentences of the repository, for a reader who marks sentences that need two readings.

    python tests/sample_sentences.py SEED [COUNT] [PATH ...]

COUNT is 150 by default. The default paths are the package, the notebooks, README.md and .packaging.
A sentence is at least four words of a docstring, a comment, a guide or a cell of text. Each line of
the output is a number, the file with its line (or cell), and the sentence.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from test_english import _CODE_BLOCK, files, prose

PLACES = ("tma_dlpack", "notebooks", "README.md", ".packaging")
_ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"\n *[A-Z][A-Za-z ]+\n *-{3,}\n")  # the heading of a section of a docstring
_EXAMPLE = re.compile(r"^ *(>>>|\.\.\.).*?(?=\n *\n|\Z)", re.MULTILINE | re.DOTALL)
#: Adjacent comment lines, or a comment after code.
_HASHES = re.compile(r"(?:^ *#[^\n]*\n)+|(?<=  )# [^\n]*", re.MULTILINE)
_SLASHES = re.compile(r"(?:^ *//[^\n]*\n)+|(?<= )// [^\n]*|/\*.*?\*/", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^\s*(?:#|//|/\*|\*/?)+<?:? ?|\*/$", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`*\[])")
#: The start of a paragraph: an empty line, an item of a list, a parameter of a docstring, an
#: indent.
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*[-|*] |\n *\*?\w[\w, ]* : [^\n]*\n|\n {4,}(?=\S+ {2,})")


def blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a file with their line numbers (in a notebook, cell numbers)."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found = ast.get_docstring(node)
                if found:
                    yield getattr(node, "lineno", 1), found
        for block in _HASHES.finditer(text):
            yield text.count("\n", 0, block.start()) + 1, block[0]
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "markdown":
                yield number, _CODE_BLOCK.sub("", "".join(cell["source"]))
    elif path.suffix in {".h", ".c", ".hpp", ".cu", ".cuh", ".js"}:
        for block in _SLASHES.finditer(text):
            yield text.count("\n", 0, block.start()) + 1, block[0]
    else:
        yield from prose(path.name, text)


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a file."""
    for line, block in blocks(path):
        text = _EXAMPLE.sub("", _HEADING.sub("\n\n", _MARKS.sub("", block)))
        for paragraph in _PARAGRAPH.split(text):
            if "|" in paragraph or paragraph.lstrip().startswith("<"):
                continue
            for sentence in _END.split(" ".join(paragraph.split())):
                if "---" not in sentence and len(re.findall("[A-Za-z]{2,}", sentence)) >= 4:
                    yield line, sentence


def main(seed: int, count: int, places: list[str]) -> None:
    """Print the sample."""
    paths = [path for place in places or PLACES for path in files(place)]
    found = [(path, *each) for path in paths for each in sentences(path)]
    drawn = random.Random(seed).sample(found, min(count, len(found)))
    for number, (path, line, sentence) in enumerate(drawn, 1):
        shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
        print(f"{number:3} {shown}:{line}: {sentence}")
    print(f"{len(drawn)} of {len(found)} sentences in {len(paths)} files, seed {seed}")


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]), int(words[1]) if len(words) > 1 else 150, words[2:])
