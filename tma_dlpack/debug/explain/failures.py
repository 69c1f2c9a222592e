"""Reader of the failures that a text shows, from a table of patterns, causes and next steps.

To add a failure, add a block to failures.txt and a text to tests/golden/failures.json. The patterns
of `results` recognise the driver's results. Every other failure is recognised by the patterns of
its block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tma_dlpack.debug.explain.judge import PrintedArguments
from tma_dlpack.debug.explain.results import LONGEST_SYMPTOM, places_of
from tma_dlpack.debug.explain.words import tables
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.targets import INNER_BYTES, STICKY

# An id in `Failure.replaced_by`. If an encode was read, its report replaces the failure's causes.
ENCODE = "encode"
# The `source` of failures that end a launch.
_MEASURED = "measured, H200"
# Characters before and after a failure that are searched for the name of its cause.
_NEAR = 2_000
_LONG = 1 << 15  # characters
_LONGEST_EVIDENCE = 90  # characters


class Cause(NamedTuple):
    """A cause of a failure: the misuse, its check, a key of `_facts`, the pattern of its name."""

    misuse: str
    check: str
    fact: str = ""
    named: re.Pattern[str] | None = None


class Failure(NamedTuple):
    """A block of failures.txt; any id in `replaced_by` makes this failure redundant."""

    id: str
    words: str
    step: str
    source: str
    replaced_by: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    causes: tuple[Cause, ...]


# Name in braces in failures.txt, such as {trace} -> the text that replaces it.
_STEPS: Final = {
    "trace": "`tma-dlpack trace -- PROGRAM`",
    "doctor": "`tma-dlpack doctor`",
    "suggest": "`tma-dlpack suggest --shape ... --dtype ... --tile ...`",
    "one_call": 'read the guide "one call", whose examples pass a map to each framework\'s kernels',
    "postmortem": "a GPU core dump names the instruction, its line and the cause, of any program "
    "without a rebuild: `tma-dlpack postmortem -- PROGRAM` (of one that hangs: --after SECONDS, or "
    "Ctrl-C)",
}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.MULTILINE)


def _cause(misuse: str, check: str, fact: str = "", named: str = "") -> Cause:
    return Cause(misuse, check, fact, _pattern(named) if named else None)


def _failures() -> Iterator[Failure]:
    # A block is a row "# id | ...", rows "? pattern", and rows of causes; a row is a list of cells.
    blocks: list[list[list[str]]] = []
    for cells in tables("failures")["FAILURES"]:
        if cells[0].startswith("# "):
            blocks.append([])
        blocks[-1].append(cells)
    for (name, words, step, source, *replaced), *lines in blocks:
        # `tables` splits rows at " | ", which a pattern may contain, so the cells are joined again.
        patterns = [" | ".join(cells)[2:] for cells in lines if cells[0].startswith("? ")]
        causes = [_cause(*cells) for cells in lines if not cells[0].startswith("? ")]
        yield Failure(
            name[2:], words, step.format_map(_STEPS), source,
            frozenset(" ".join(replaced).split()), tuple(map(_pattern, patterns)), tuple(causes),
        )  # fmt: skip


FAILURES: Final = {failure.id: failure for failure in _failures()}

# "the kernel hangs", but not "the kernel no longer hangs".
_HANGS = re.compile(
    r"\b(?:kernel|launch|program|process|script|copy|load|wait)\b"
    r"(?:(?!\b(?:not|no longer|never hangs?)\b|n't\b)[^\n.]){0,40}?"
    r"\b(?:hangs?|hung|hanging|deadlocks?|is stuck|never (?:returns|finishes|completes|ends))\b",
    re.IGNORECASE,
)
_DOES_NOT = r"(?:not|nothing|no|never|without|\w+n't) (?:[\w']+ )?(?:hang|deadlock|stuck|freez)"
# A pattern for a whole text of few words, such as "it hangs sometimes".
_SHORT_HANG = re.compile(
    rf"(?:(?!{_DOES_NOT})[\w']+ ){{0,6}}"
    r"(?:hangs?|hung|hanging|deadlock(?:s|ed)?|stuck|freezes"
    r"|never (?:returns|finishes|completes|ends|stops))(?: forever| sometimes| always)?[.!?]*",
    re.IGNORECASE,
)


class FoundFailure(NamedTuple):
    """A failure that a text shows, and the index of the failure's first character in the text."""

    failure: Failure
    place: int


def distinct_lines(text: str) -> str:
    """Return a long text without repeated lines, and a short text unchanged."""
    return text if len(text) <= _LONG else "\n".join(dict.fromkeys(text.split("\n")))


def failures_in(text: str, replacing: Iterable[str] = ()) -> list[FoundFailure]:
    """Return the failures that a text shows, in the order of the text.

    `replacing` has additional ids that may replace a failure, such as `ENCODE`.

    >>> [seen.failure.id for seen in failures_in("illegal memory access ... the kernel hangs")]
    ['700', 'hang']
    """
    # `found`: id -> the first place of the failure. `others`: id -> a result of the driver that
    # has no block in the table.
    found: dict[str, int] = {}
    others: dict[str, Failure] = {}
    for result, place in places_of(text).items():
        code = str(result.code)
        # For result 1, only the stricter patterns in failures.txt count, because any library may
        # print "invalid argument".
        if code in FAILURES and code != "1":
            found[code] = place
        elif result.code in STICKY:
            words = f"{code} ({result.words})"
            others[code] = Failure(code, words, "", "", frozenset(), (), ())
            found[code] = place
    for failure in FAILURES.values():
        matches = (pattern.search(text) for pattern in failure.patterns)
        if places := [match.start() for match in matches if match]:
            found[failure.id] = min(*places, found.get(failure.id, len(text)), len(text))
    short = len(text) <= LONGEST_SYMPTOM and _SHORT_HANG.fullmatch(text.strip())
    if hang := short or _HANGS.search(text):
        found["hang"] = hang.start()
    known = {*found, *replacing}
    rows = {name: others.get(name) or FAILURES[name] for name in found}
    seen = [
        FoundFailure(row, found[name]) for name, row in rows.items() if not row.replaced_by & known
    ]
    return sorted(seen, key=lambda one: one.place)


def notes_of(
    text: str, seen: Sequence[FoundFailure], maps: Sequence[PrintedArguments]
) -> list[str]:
    """Return notes on each failure: its causes, then the next step.

    Causes that the text names come first. If the text shows a map, the map rules out some causes
    and adds facts to other causes.
    """
    # With several different maps, it is not known which map the failed kernel used.
    facts = _facts(maps[0]) if maps and all(m == maps[0] for m in maps) else {}
    notes: list[str] = []
    for failure, place in seen:
        near = text[max(0, place - _NEAR) : place + _NEAR]
        out = [c for c in failure.causes if facts.get(c.fact, "").startswith("ruled out")]
        likely = [(_evidence(c, near), c) for c in failure.causes if c not in out]
        # The sort is stable, so causes without evidence stay in the table's order (by likelihood).
        likely.sort(key=lambda item: not item[0])
        for number, (evidence, cause) in enumerate(likely, 1):
            fact = f" ({facts[cause.fact]})" if cause.fact in facts else ""
            notes.append(
                f"{failure.words}, cause {number}: {cause.misuse}{evidence}{fact}; check: "
                f"{cause.check}"
            )
        notes += [f"{failure.words}, {facts[c.fact]}: {c.misuse}" for c in out]
    if any(failure.source == _MEASURED for failure, _ in seen) and not maps:
        notes.append(
            "paste the map too (its 128 bytes or its arguments), because it rules causes out"
        )
    if any(failure.id == "hang" for failure, _ in seen):
        notes.append(_NO_ERROR)
    steps: dict[tuple[str, str], None] = dict.fromkeys(
        (failure.step, failure.source) for failure, _ in seen if failure.step
    )
    return notes + [f"next: {step} (source: {source})" for step, source in steps]


def _evidence(cause: Cause, near: str) -> str:
    found = cause.named.search(near) if cause.named else None
    return f" (the text has: {' '.join(found[0].split())[:_LONGEST_EVIDENCE]})" if found else ""


_NO_ERROR = (
    "a wait that ends too early gives no error, and a tile that is wrong or right by luck: the "
    "barrier expects fewer bytes "
    "than arrive or waits for the other parity; the block ends with the load in flight; with a "
    "swizzle, the destination is not aligned to the pattern (1024 bytes for 128B) and the kernel "
    "indexes from its own start."
)


def _facts(read: PrintedArguments) -> dict[str, str]:
    """Return facts about a map, by the keys of the causes in the table.

    A fact that begins with "ruled out" excludes the causes with its key.
    """
    facts = {"zeros": "ruled out (this map is not zeros)"}
    mode = {"tiled": "no .im2col", "im2col": "only .im2col", "im2col_wide": "only .im2col::w"}
    facts["kind"] = f"this map is {read.kind}: {mode[read.kind]} instruction may use it"
    if read.rank is not None:
        facts["rank"] = f"this map has rank {read.rank}: .{read.rank}d"
    if read.global_address is not None:
        null = "0: that is the cause" if not read.global_address else f"{read.global_address:#x}"
        facts["address"] = f"its address is {null}"
    if not isinstance(read.data_type, TensorMapDataType):
        return facts
    row = DATA_TYPES[read.data_type]
    facts["unit"] = f"with this map, a multiple of {INNER_BYTES * 8 // row.element_bits} elements"
    box, steps = read.box_dim or (), read.element_strides or ()
    # A box of extent e with element stride s has ceil(e / s) elements (CUDA driver API).
    if box and len(box) == len(steps) and None not in (*box, *steps):
        count = math.prod(-(-(e or 0) // (s or 1)) for e, s in zip(box, steps, strict=True))
        tx_bytes = count * row.element_bits // 8
        # The tx-count of an mbarrier is at most 2^20 - 1 (PTX ISA, mbarrier).
        many = (1 << 20) // max(tx_bytes, 1) + 1
        facts["bytes"] = f"one copy through this map transfers {tx_bytes} bytes"
        facts["range"] = (
            f"one copy transfers {tx_bytes} bytes, so only {many} or more of them leave it"
        )
    return facts
