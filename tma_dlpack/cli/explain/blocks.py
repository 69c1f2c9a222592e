"""From a stream of lines to blocks: the printed fields that belong to one encode.

Where lines or parts of lines of several processes are mixed, the blocks concerned are marked, and
nobody reads their numbers.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tma_dlpack.cli.explain.names import (
    ARRAYS,
    BOUNDARY,
    NAMED,
    STRONG,
    WEAK,
    key_of,
    tail_of,
)
from tma_dlpack.cli.explain.streams import Stream
from tma_dlpack.cli.explain.values import CUT, JUNK, Unreadable, Value, read_list, read_scalar

FAR_LINES = 12  # between two fields of one printout, at most
FAR_WHOLE_LINES = 3  # where the tensor and the tile are there already
LONGEST_WORD = 60
FAR_WEAK_LINES = 3  # a weak word stands no further from its neighbours

_WORD = re.compile(r"[A-Za-z_]\w*")
_TORN_HEADING = re.compile(r"TMA Desc Addr:(?![ \t]*(?:0x)?[0-9a-fA-F]{1,16}(?:[ \t\n]|$))")
_TORN_LINE = re.compile(r"^[ \t]*(?:[\d, \t]*\)|,)[\d,() \t]*$|^[ \t]*\([\d, \t]*$", re.MULTILINE)
_OF_32_BITS = frozenset({"box_dim", "element_strides"})
_AFTER_WORD = re.compile(
    r"(?:\[[ \t]*(?P<index>\d{0,2})[ \t]*\])?[\"'`*]{0,2}"
    r"(?:[ \t]*\((?:in[ \t]+)?(?P<unit>bytes?|elements?|elems|values)\))?"
    r"(?P<sep>[ \t]*(?:=>|->|:=|==?|:|\||-{2,})[ \t]*|[ \t]+|(?=[\[({])|[ \t]*$)",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Field:
    """One printed argument: the word, the driver's name for it, the value, where it stands."""

    word: str
    argument: str
    value: Value
    line: int
    last_line: int
    separator: str
    unit: str
    strong: bool
    at: int  # of an entry printed by itself, as in name[0] = 64; else -1
    follows: str  # the character before the word, blanks left out


@dataclass(slots=True)
class Block:
    """The fields of one printout, in the order of the text.

    `fault` is "" or why its numbers must not be taken: "mixed", "junk" or "cut". `heading` is what
    stood at its beginning.
    """

    heading: str = ""
    fields: dict[str, Field] = field(default_factory=dict)
    indexed: dict[str, dict[int, int]] = field(default_factory=dict)
    first_line: int = 0
    last_line: int = 0
    fault: str = ""
    continues: bool = False
    ends_cut: bool = False
    words: dict[str, None] = field(default_factory=dict)  # in the order of the text

    @property
    def is_whole(self) -> bool:
        """Whether what every printout shows is there: the tensor's extents and the tile's."""
        tile = {"box_dim", "channels_per_pixel"} & (self.fields.keys() | self.indexed.keys())
        return bool(tile) and "global_dim" in (self.fields.keys() | self.indexed.keys())

    @property
    def is_close(self) -> bool:
        """Whether every line between its first and its last one shows a field."""
        lines = {n for f in self.fields.values() for n in range(f.line, f.last_line + 1)}
        return self.last_line - min(lines, default=0) < len(lines)

    @property
    def has_strong(self) -> bool:
        """Whether a field has a strong word."""
        return bool(self.indexed) or any(f.strong for f in self.fields.values())

    def has(self, found: Field) -> bool:
        """Whether there is a value where a field would go."""
        if found.at >= 0:
            return found.at in self.indexed.get(found.argument, {})
        return found.argument in self.fields

    def repeats(self, found: Field) -> bool:
        """Whether a field says again what is known: in another word, or twice on a line."""
        known = self.fields.get(found.argument)
        if known is None or found.at >= 0 or known.value != found.value:
            return False
        return known.line == found.line or known.word != found.word

    def put(self, found: Field) -> None:
        """Take a field."""
        if not self.fields and not self.indexed:
            self.first_line = self.first_line or found.line
        self.last_line = found.last_line
        self.words.setdefault(found.word)
        entries = found.value if isinstance(found.value, tuple) else ()
        if found.argument in _OF_32_BITS and any(entry >> 32 for entry in entries):
            self.fault = self.fault or "junk"  # no printer has such a number to print
        if found.at >= 0:
            assert isinstance(found.value, int)
            self.indexed.setdefault(found.argument, {})[found.at] = found.value
        else:
            self.fields[found.argument] = found

    def spoil(self, found: Field) -> None:
        """Note a field that cannot be read."""
        assert isinstance(found.value, Unreadable)
        self.fault = self.fault or found.value.why
        self.last_line = found.line
        self.ends_cut = found.value is CUT
        self.fields.setdefault(f"unreadable {found.word}", found)

    def completes(self, other: Block) -> bool:
        """Whether it has what another lacks and nothing else: the rest of a printout torn apart."""
        tile = {"box_dim", "channels_per_pixel"}
        mine, others = self.fields.keys(), other.fields.keys()
        return "global_dim" in others and bool(tile & mine) and not mine & others

    @property
    def shows_arguments(self) -> bool:
        """Whether it is the printout of an encode, not words of a log that happen to be there."""
        strong = {a for a, f in self.fields.items() if f.strong} | self.indexed.keys()
        arrays = (self.fields.keys() | self.indexed.keys()) & ARRAYS
        return len(strong) >= 2 and bool(arrays)


def blocks_of(stream: Stream) -> list[Block]:
    """Gather the fields of a stream in blocks, torn ones and those of no encode too."""
    blocks: list[Block] = [Block()]
    starts = _line_starts(stream.text)
    for place, event in _events(stream, starts):
        if isinstance(event, str):
            line = stream.lines[_row(starts, place)]
            blocks.append(Block(heading=event.strip(), first_line=line, last_line=line))
            if _TORN_HEADING.match(stream.text, place):
                blocks[-1].fault = "junk"
        else:
            _add(blocks, event)
    return [b for b in blocks if b.fields or b.indexed]


def _line_starts(text: str) -> list[int]:
    return [0, *(m.end() for m in re.finditer("\n", text))]


def _events(stream: Stream, starts: list[int]) -> Iterator[tuple[int, str | Field]]:
    """Give places where a printout begins, and fields, in the order of the text."""
    text = stream.text
    boundaries = BOUNDARY.finditer(text)
    boundary = next(boundaries, None)
    rests = _TORN_LINE.finditer(text)
    rest = next(rests, None)
    known: dict[str, tuple[str, bool] | None] = {}
    after = 0
    end = len(text.rstrip("\n\r\t `'\""))
    for word in _WORD.finditer(text):
        while boundary is not None and boundary.start() <= word.start():
            yield boundary.start(), boundary[0]
            after = max(after, boundary.end())
            boundary = next(boundaries, None)
        while rest is not None and rest.start() <= word.start():
            if rest.start() >= after:
                yield rest.start(), _rest_of_list(stream.lines[_row(starts, rest.start())])
            rest = next(rests, None)
        if word.start() < after:
            continue
        name = word[0]
        if name not in known:
            known[name] = _meaning(name)
        meaning = known[name]
        if meaning is None:
            continue
        found = _read_field(text, end, word, *meaning)
        if found is not None:
            read, after = found
            first = stream.lines[_row(starts, word.start())]
            last = stream.lines[_row(starts, max(word.start(), after - 1))]
            yield word.start(), replace(read, line=first, last_line=last)


def _row(starts: list[int], place: int) -> int:
    return bisect.bisect_right(starts, place) - 1


def _rest_of_list(line: int) -> Field:
    """Give what stands for a line such as ``1,1)``, whose beginning is elsewhere."""
    return Field("", "", JUNK, line, line, "", "", True, -1, "")


def _meaning(word: str) -> tuple[str, bool] | None:
    """Give the argument that a word names, and whether it is a strong word."""
    if len(word) > LONGEST_WORD:
        return None
    key = key_of(word)
    if key in STRONG:
        return STRONG[key], True
    if key in WEAK:
        return WEAK[key], False
    tail = tail_of(word) if "_" in word else None
    return None if tail is None else (tail, True)


def _read_field(
    text: str, end_of_text: int, word: re.Match[str], argument: str, strong: bool
) -> tuple[Field, int] | None:
    """Read the value after a word; None where the word is part of a sentence."""
    follows = _AFTER_WORD.match(text, word.end())
    if follows is None:
        return None
    separator, at = follows["sep"].strip(), follows.end()
    at += len(text[at : at + 2]) - len(text[at : at + 2].lstrip("\"'`*"))
    opens = text[at : at + 1] in tuple("([{")
    leads = _leads_its_line(text, word.start())
    is_part = text[word.start() - 1 : word.start()] in (".", "-", "_", ">")
    if not strong and (is_part or (not separator and not leads)):
        return None
    entry = bool(follows["index"] and separator and not opens)
    if argument in ARRAYS and not entry:
        value, end = read_list(text, at)
        if isinstance(value, Unreadable) and value is not CUT and follows["index"]:
            return None
    else:
        value, end = read_scalar(text, at, argument in NAMED and bool(separator or leads))
    if isinstance(value, Unreadable):
        end = word.end()
        ends_here = value is CUT and (end >= end_of_text or opens)
        torn = value in (CUT, JUNK) and strong and leads
        if not ends_here and (not torn or (separator and value is CUT)):
            return None  # a sentence, or "strides:" as the heading of something else
    elif isinstance(value, str) and not separator and not opens and not _is_member_name(value):
        return None
    return (
        Field(
            word=word[0],
            argument=argument,
            value=value,
            line=0,
            last_line=0,
            separator=separator or " ",
            unit=(follows["unit"] or "").lower(),
            strong=strong,
            at=int(follows["index"] or 0) if argument in ARRAYS and entry else -1,
            follows=text[max(0, word.start() - 40) : word.start()].rstrip(" \t")[-1:],
        ),
        end,
    )


def _leads_its_line(text: str, place: int) -> bool:
    """Say whether only quotes and bullets stand before a word, or ``TMA Desc Addr`` does."""
    _, newline, on_its_line = text[max(0, place - 40) : place].rpartition("\n")
    starts = bool(newline or place <= 40) and not on_its_line.strip(" \t\"'*`-")
    return starts or text.find("TMA Desc Addr", max(0, place - 60), place) >= 0


def _is_member_name(word: str) -> bool:
    sized = word.isupper() and any(map(str.isdigit, word))
    return "CU_TENSOR_MAP" in word or "." in word or sized


def _add(blocks: list[Block], found: Field) -> None:
    """Put a field into the block it belongs to, the last one or a new one."""
    block = _near(blocks, found)
    if isinstance(found.value, Unreadable):
        near = found.line - block.last_line <= 1
        if (block.fields or block.heading) and (found.word or near):
            block.spoil(found)
    elif not block.has(found):
        block.put(found)
    elif not block.repeats(found):
        first = next(iter(block.fields), found.argument) == found.argument
        if block.is_whole or first:
            blocks.append(Block(first_line=found.line, continues=not first))
            blocks[-1].put(found)
        else:
            block.fault = "mixed"


def _near(blocks: list[Block], found: Field) -> Block:
    """Give the last block, or a new one where a field is too far from it."""
    block = blocks[-1]
    gap = found.line - block.last_line
    lone = gap > FAR_WEAK_LINES
    if lone and found.strong and not block.has_strong:
        block.fields.clear()  # weak words further up belong to something else
        block.words.clear()
        block.first_line = found.line
    far = gap > (FAR_WHOLE_LINES if block.is_whole else FAR_LINES)
    if block.fields and (far or (lone and not found.strong)):
        blocks.append(Block(first_line=found.line))
    return blocks[-1]
