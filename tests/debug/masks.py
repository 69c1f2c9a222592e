"""Printouts of valid encodes in which one number is masked, in all usual forms of masks."""

from __future__ import annotations

import re

from damage import Dice, printed

#: Replacements of a number's last digits, with or without a blank before them.
MASKS = (
    "...", "..", "....", "…", "***", "*", "xxx", "XXX", "x", "???", "?", "###", "#", "---", "--",
    "-", "~", "~~", "___", "_", "%%", "$$$", "@@", "^", "+", "=", "!!", "\\", "/", "/...", "//",
    ":", "::", "<redacted>", "(redacted)", "[redacted]", "{redacted}", "<masked>", "(masked)",
    "[masked]", "<REDACTED>", "[REDACTED]", "[MASKED]", "(truncated)", "[truncated]",
    "<truncated>", "<...>", "(...)", "[...]", "{...}", "<…>", "[…]", "<***>", "[***]", "(***)",
    "[hidden]", "<hidden>", "(cut)", "[+3 digits]", "(+3 digits)", "<3 more>", "...(3 more)",
    "...more", "[snip]", "<snip>", "<cut here>", "&hellip;", "&#8230;", "&#x2026;",
    "&lt;redacted&gt;", "&lt;...&gt;", "</span>...", "<span>...</span>", "<b>***</b>",
    "<del>12</del>", "<!-- cut -->", "█", "██", "■■", "•••", "·", "●●", "�", "\u200b", "\u200b…",
    "\u00ad", "､", "“…”", "'...'", '"..."', "`...`", "'", "''", "|...", "^C", "^H", "{{ n }}",
    "${N}", "%d", "%lu", "{}", "e3", "e+3", "E5", "K", "k", "M", " KiB", "KB", "_KB", "j", "n",
    "h", "px", ".5", ".0", ",...", ", ...", ";...", " ...", " …", " ***", " <redacted>",
    " (redacted)", " [redacted]", " (truncated)", " [truncated]", " truncated", " -- truncated",
    " - cut", " [...]", " (...)", " <...>", " # cut", " // cut", " /* cut */", " \\", " etc",
    " and more", " and so on", " +3 digits", " (3 more digits)", " million", " thousand",
    " x 10^3", "*10^3", "^3", "<<3", ">>1", "!", "&", "&&", "@", "$", "=>", "->", "<-", "<", ">",
    "\t...", "\t(masked)",
)  # fmt: skip
NUMBER = re.compile(r"(?<![\w.\[])(?:0x[0-9a-f]{3,}|\d{2,})(?![\w.])")


def masked(seed: int) -> tuple[str, str]:
    """Return a printout of a valid encode in which a number is masked, and the mask."""
    rnd = Dice(seed)
    while True:
        text, _ = printed(rnd)
        numbers = [*NUMBER.finditer(text)]
        if not numbers:
            continue
        found = rnd.choice(numbers)
        number = found[0]
        kept = rnd.randint(3 if number[:2] == "0x" else 1, len(number) - 1)
        mask = rnd.choice(MASKS)
        if number[:2] == "0x" and mask.strip() in ("e3", "E5", "''"):
            continue  # a mask of digits or quotes
        place = rnd.random()
        if place < 0.7:
            shown = number[:kept] + mask
        elif (
            place < 0.85 and kept + 1 < len(number) and mask not in ("'", "*", "x")
        ):  # the middle of it
            shown = number[:kept] + mask + number[kept + 1 :]
        elif "'" in mask or mask.strip() in ("-", "+", "=", ":", "=>", "->", ">"):
            continue  # before a number, these characters are signs and quotes
        else:
            shown = mask.strip() + number[kept:]
        return text[: found.start()] + shown + text[found.end() :], mask
