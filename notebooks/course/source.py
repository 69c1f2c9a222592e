"""The source file of a kernel, from which chapters show single functions and sections."""

from __future__ import annotations

import difflib
from pathlib import Path


class Source:
    """The text of a CUDA file.

    Attributes
    ----------
    text : str
    lines : int
        The number of lines.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = len(text.splitlines())

    def function(self, head: str) -> str:
        """Return the ``__device__`` function that begins with `head`, and the comment above it.

        >>> text = "int a;\\n\\n// Twice.\\n__device__ int f(int x)\\n{\\n}\\n"
        >>> print(Source(text).function("int f"))
        // Twice.
        __device__ int f(int x)
        {
        }
        """
        at = self.text.index(f"__device__ {head}(")
        start = self.text.rindex("\n\n", 0, at) + 2
        # The closing brace is indented like its function: 2 spaces in a struct, else 0 spaces.
        closed = "\n  }\n" if self.text[start] == " " else "\n}\n"
        return self.text[start : self.text.index(closed, at) + len(closed) - 1]

    def kernel(self, name: str) -> str:
        """Return an ``extern "C"`` kernel by its name.

        >>> Source('extern "C" __global__ void\\n  f(int n)\\n{\\n}\\n\\nint a;\\n').kernel("f")
        'extern "C" __global__ void\\n  f(int n)\\n{\\n}'
        """
        # The name may be on a later line than `extern "C"`, after the launch bounds.
        start = self.text.rindex('extern "C"', 0, self.text.index(f" {name}("))
        return self.text[start : self.text.index("\n}\n", start) + 2]

    def section(self, title: str) -> str:
        """Return the text from the line ``// ---- title ----`` to the next line of this form.

        >>> Source("// ---- one ----\\na;\\n// ---- two ----\\nb;\\n").section("one")
        'a;'
        """
        return self.text.split(f"// ---- {title} ----\n")[1].split("// ---- ")[0].strip()


def difference(before: str, after: str) -> str:
    """Return the lines in which two kernels differ, and the lines next to them.

    Differences in indentation are ignored.

    >>> print(difference("a;\\nb;\\nc;", "a;\\n  b;\\nd;"))
      a;
        b;
    - c;
    + d;
    """
    old, new = before.splitlines(), after.splitlines()
    # Compare lines without indentation, so that a line that moves into a loop counts as unchanged.
    texts = [line.strip() for line in old], [line.strip() for line in new]
    lines: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag == "equal":
            # If more than two lines are equal, show only the lines next to a change.
            shown = [f"  {line}" for line in new[c:d]]
            keep = [*shown[: bool(lines)], *["  ..."] * (len(shown) > 2), *shown[-1:]]
            lines += shown if len(shown) <= 2 else keep
        else:
            lines += [f"- {line}" for line in old[a:b]] + [f"+ {line}" for line in new[c:d]]
    return "\n".join(lines)


def source(path: str | Path) -> Source:
    """Return the `Source` of a file."""
    return Source(Path(path).read_text(encoding="utf-8"))
