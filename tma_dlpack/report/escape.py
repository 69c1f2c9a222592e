"""Foreign text, made safe to print: names of kernels and files, lines of a log."""

from __future__ import annotations

import re

#: C0 and C1 controls without the newline, bidirectional controls, invisible characters, surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def printable(text: str) -> str:
    r"""Return a text without characters that move the cursor, are invisible, or reverse a line.

    >>> printable("a\x1b[2Jb\u202ec\td\n")
    'a\\x1b[2Jb\\u202ec d\n'
    """
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    # A tab becomes a blank, other characters become Python's escapes.
    code = ord(found[0])
    if code == 9:
        return " "
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
