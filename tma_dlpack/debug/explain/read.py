"""Reader of printouts, which finds fields in a text and groups the fields of each printout.

A field is ``name [index] (unit) = value``; its name is called a word. A block has the fields of one
printout. A form describes how one project prints the arguments. The docstring of words.py explains
strong words and weak words. If the lines of a block may come from several processes, the block is
marked as mixed, and its numbers are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import NamedTuple

from tma_dlpack.debug.explain.source import NAMED
from tma_dlpack.debug.explain.words import (
    ARRAYS,
    FORMS,
    GENERAL,
    WORD,
    Entries,
    Form,
    Lines,
    key_of,
    meaning_of,
)

# Maximum number of lines between two fields of one printout. `FAR_WHOLE_LINES` applies if the
# fields before the gap show the extents of both the tensor and the tile. Otherwise, `FAR_LINES`
# applies.
FAR_LINES = 12
FAR_WHOLE_LINES = 3
# Maximum number of lines between two blocks of a run (see `_mark_mixed`). It is also the maximum
# number of lines between a field with a weak word and the other fields of its block.
NEAR_LINES = 3
LONGEST_LIST = 600  # characters

# -- one value ------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A printed value: numbers, a name, or the reason why the value is not read.

    An entry of `numbers` that cannot be read is None. `comma` is "?" if all commas may separate
    thousands, and "mixed" if some commas may separate thousands and others separate entries.
    Otherwise, it is "tight" if at least one comma has no blank after it. `end` is the index of the
    first character after the value. `fault` is one of these words:

    - "": the value is read
    - "unread": a number is masked, or the unit is unknown
    - "cut": the text ends within the value
    - "address": the text has an address in place of a list
    - "broken": the text has only a part of a list, because the output of processes is mixed
    - "prose": the text is a sentence
    """

    numbers: Entries = ()
    word: str = ""
    fault: str = ""
    end: int = 0
    bracket: str = ""
    comma: str = ""
    unit: str = ""


# A decimal number, or a masked number, which `normal` writes as "?".
_ITEM = r"(?:-?\d{1,24}|\?)(?![\w?])"
_ONE = re.compile(_ITEM)
_INTEGER = re.compile(r"-?\d{1,24}")
_ROW = re.compile(rf"{_ITEM}(?:(?:[ \t]*,[ \t]*|[ \t]+){_ITEM})*")
_LIST = re.compile(rf"[\[({{]([^\[\](){{}}]{{0,{LONGEST_LIST}}})[\])}}]")
# The separators of numbers without brackets.
_BETWEEN = re.compile(r"[,\s]+")
# An entry of a list in brackets: a number or an expression, such as "64 * 2".
_PIECE = re.compile(r"[\w*.+\-/<> ?&]{0,40}")
# "4,096", which may be 4096 or the list (4, 96).
_GROUPED = re.compile(r"\d{1,3}(?:,(?:\d{3}|\?))+")
_UNIT = re.compile(r"[ \t]*(bytes?|B|elements?|elems?|values?)\b")
# The text that may follow numbers without brackets: the end of the line, a separator,
# "(mod4 = 0)", or another word. If other text follows, such as "%" in "64%", the numbers are not
# read.
_AFTER = re.compile(
    r"[ \t]*[)\]}]{0,8}(?:[.,;|]?[ \t]*$|[;|](?=[ \tA-Za-z_])|,(?=[ \t]*[A-Za-z_])"
    r"|[ \t]*\((?=mod\d|base:|CU_|0x|[A-Z\d_]{2,}\))"
    r"|[ \t]*(?P<word>[A-Za-z_]\w*)(?P<sign>[ \t]*[:=])?)",
    re.MULTILINE,
)
# An enum's member, such as "BFLOAT16", "CU_TENSOR_MAP_SWIZZLE_128B (3)" or "Swizzle::B128".
_MEMBER = re.compile(r"([A-Za-z_0-9][\w.:]*)(?:[ \t]*\((\d{1,5})\))?")
_AFTER_NAME = re.compile(r"$|[\s,;:)\]}>|'=]", re.MULTILINE)
# A list that is cut off by the end of the text, and the remainder of a broken list.
_CUT = re.compile(rf"[(\[{{]?[\s\d,?-]{{0,{4 * LONGEST_LIST}}}\Z")
_BROKEN = re.compile(r"[\d,)]|[(\[{][ \t]*(?:[\d,]|$)", re.MULTILINE)
# Sizes of swizzles and L2 promotions in bytes. A number at the end of the text may lack its last
# digits, but these numbers are complete, because no longer size begins with their digits.
_WHOLE = ("16", "32", "64", "128", "256")
# Host addresses of the stack and the heap, which are larger than any entry of a list.
_ADDRESSES = range(1 << 44, 1 << 48)


def read_value(text: str, at: int, argument: str) -> Value:
    r"""Read the value of an argument: a list, a number, or the name of an enum's member.

    >>> read_value("(64,128,1)", 0, "box_dim").numbers, read_value("64 128", 0, "box_dim").fault
    ((64, 128, 1), 'cut')
    >>> read_value("(64,?,1)", 0, "box_dim").numbers, read_value("64 1\ntwo", 0, "box_dim").numbers
    ((64, None, 1), (64, 1))
    """
    is_array = argument in ARRAYS
    if is_array and (found := _LIST.match(text, at)):
        return _listed(text, found)
    if row := (_ROW if is_array else _ONE).match(text, at):
        return _matched_row(text, row, is_array)
    if argument in NAMED and (word := _MEMBER.match(text, at)):
        number = (int(word[2]),) if word[2] else ()
        is_cut = word[1].endswith(("..", "_")) or not _AFTER_NAME.match(text, word.end())
        return Value(number, word[1].rstrip(".:"), "unread" * is_cut, word.end())
    if cut := _CUT.match(text, at):
        return Value(fault="cut", end=cut.end())
    return Value(fault="broken" if _BROKEN.match(text, at) else "prose")


def _listed(text: str, found: re.Match[str]) -> Value:
    """Read a list in brackets."""
    inside, end = found[1].strip(), found.end()
    commas = "," in inside
    pieces = re.split(r"\s*(?:,|;\s)\s*", inside.rstrip(", \n")) if commas else inside.split()
    numbers = tuple(map(_int, pieces))
    is_list = all(map(_PIECE.fullmatch, pieces)) and (
        commas or len(pieces) == 1 or None not in numbers
    )
    comma, unit = _comma(inside), _UNIT.match(text, end)
    # In "name[2] = (64, 1)", the first brackets are an index, because "=" follows.
    is_index = re.match(r"[ \t]*=(?!=)", text[end : end + 4])
    unread = is_index or comma == "mixed"
    if is_list and not unread and any(n is not None for n in numbers):
        return Value(numbers, "", "", end, found[0][0], comma, unit[1] if unit else "")
    if unread or re.fullmatch(r"[\s\d?,-]+", inside):
        return Value(fault="unread", end=end)
    is_broken = not is_list and inside[:1] in tuple("0123456789,")
    return Value(fault="broken" if is_broken else "prose", end=end)


def _matched_row(text: str, row: re.Match[str], is_array: bool) -> Value:
    """Read numbers without brackets."""
    numbers = tuple(map(_int, _BETWEEN.split(row[0])))
    unit = _UNIT.match(text, row.end())
    end = (unit or row).end()
    after = _AFTER.match(text, end)
    # The text after the numbers is known if it has no word, or if its word begins the next field.
    known = after and (not after["word"] or after["sign"] or meaning_of(after["word"]))
    comma, fault = _comma(row[0]), ""
    between = {*map(str.strip, _BETWEEN.findall(row[0]))}
    if not known or comma == "mixed" or "?" in row[0][:1] or (unit and not is_array):
        fault = "unread"
    elif len(between) > 1 or (between == {""} and None in numbers):
        # The separators differ, or a mask such as the "?" in "64 ?" may be a part of the number.
        fault = "unread"
    elif is_array and comma != "?" and (numbers[0] or 0) in _ADDRESSES:
        fault = "address"
    # If the text ends after the numbers, digits or entries may be missing.
    elif is_array or (len(row[0]) > 1 and row[0] not in _WHOLE):
        fault = "cut" if re.fullmatch(r"[ \t']*", text[end : end + LONGEST_LIST]) else ""
    return Value(numbers, "", fault, end, "", comma, unit[1] if unit else "")


def _int(item: str) -> int | None:
    return int(item) if _INTEGER.fullmatch(item) else None


def _comma(inside: str) -> str:
    """Return `Value.comma` for the text of a list."""
    if "," not in inside:
        return ""
    is_tight = bool(re.search(r",\S", inside))
    if is_tight and re.search(r"\s", inside) and re.search(r",(?:\d{3}\b|\?)", inside):
        return "mixed"
    if _GROUPED.fullmatch(inside):
        return "?"
    return "tight" if is_tight else ""


# -- fields ---------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of a printout, or a mark between fields.

    `argument` is the driver's name of the argument, `word` is the printed name, and `key` is the
    word's key in the tables (see `meaning_of`). If `argument` is "", the object is a mark. A mark
    with a word is the heading of a printout, and a mark without a word is the rest of a broken
    list. `unit` is "elements", "bytes" or "". If `in_prose` is true, the field may be a part of a
    sentence: the line has letters before the word, or words after the value.
    """

    argument: str
    key: str
    word: str
    strong: bool
    value: Value
    unit: str = ""
    sign: str = ""
    place: str | None = None  # the index of a single entry, as in name[0] = 64
    in_prose: bool = False
    line: int = 0
    last_line: int = 0


# The index, the unit and the sign after a word, such as "[0]", "(bytes)" and " = " in "strides[0]
# (bytes) = 8192".
_AFTER_WORD = re.compile(
    r"(?:\[[ \t]*(?P<index>[^\]\n]{0,12}?)[ \t]*\])?"
    r"(?:[ \t]*\((?P<unit>[A-Za-z][^()\n]{0,30})\)(?=[ \t]*[:=]))?"
    r"(?P<sign>[ \t]*(?:=>|->|:=|==?|:|\||(?<=\w)-{2,}|-{2,}(?!\S))[ \t]*"
    r"|[ \t]+|(?=[\[({])|[ \t]*$)",
    re.MULTILINE,
)
_LINE_END = re.compile(r"[\n|;]")  # `|` and `;` also separate fields
# The rest of a sentence, such as " is not divisible by 16" after "globalStrides (2002)".
_SENTENCE = re.compile(r"[ \t]+[a-z]{2,},?[ \t]+[a-z]")
_CUT_WORD = re.compile(r"([A-Za-z_]\w*)[ \t]*\n[ \t]*$")
_UNITS = dict.fromkeys(("elements", "element", "elems", "elem", "values"), "elements")
_UNITS |= {"bytes": "bytes", "byte": "bytes", "b": "bytes", "": ""}


def fields_of(stream: Lines) -> Iterator[Field]:
    """Yield the fields and marks in the lines of one process, in the order of the text."""
    text, after = stream.text, 0
    while word := WORD.search(text, after):
        found: Field | None = None
        if word.lastgroup != "name":
            heading = word["heading"] or ""
            found = Field("", "", heading, True, Value(fault=str(word.lastgroup)))
        elif meaning := meaning_of(word[0]):
            found = _read_field(text, word, after, *meaning)
        after = max(word.end(), found.value.end if found else 0)
        if found:
            line, last = stream.line_at(word.start()), stream.line_at(after - 1)
            yield found._replace(line=line, last_line=last)


def _read_field(
    text: str, word: re.Match[str], after: int, argument: str, key: str, strong: bool
) -> Field | None:
    """Return the field that begins with a word; None if the word is part of a sentence."""
    follows = _AFTER_WORD.match(text, word.end())
    if follows is None or _is_end_of_word(text, word, key):
        return None
    index, at, is_array = follows["index"], follows.end(), argument in ARRAYS
    before = _LINE_END.split(text[max(after, word.start() - 60) : word.start()])[-1]
    # `leads`: only blanks, quotes or the bullet of a list are before the word on its line.
    # `is_part`: the word continues the text before it, as in "x.shape" or "output shape".
    leads = not before.strip(" \t'*-{(,")
    opens = text[at : at + 1] in tuple("([{")
    is_part = before[-1:] in tuple(".-_>") or before.rstrip()[-1:].isalpha()
    sign = follows["sign"].strip()
    if (index is not None and not is_array) or (not strong and (is_part or not (sign or leads))):
        return None
    value = read_value(text, at, argument)
    if not is_array and value.word and not (sign or opens or "CU_" in value.word):
        return None
    # In "boxDim[2] = (64, 64)", the number in brackets is the number of entries of the list.
    if index is not None and (value.bracket or len(value.numbers) > 1 or opens):
        if index.isdigit() and not opens and int(index) != len(value.numbers):
            value = value._replace(fault="unread")
        index = None if re.fullmatch(r"\d*|\w*[A-Za-z_]\w*", index) else index
    unit = (follows["unit"] or value.unit).lower().removeprefix("in ").strip()
    if unit not in _UNITS:
        value = value._replace(fault=value.fault or "unread")
    is_field = leads or (strong and opens)
    if value.fault == "prose" or (value.fault == "broken" and not is_field):
        return None  # a sentence, or "strides:" as the heading of other lines
    sign, unit = sign or " " * (not opens), _UNITS.get(unit, "")
    line = text[max(0, word.start() - 60) : word.start()].rpartition("\n")[2]
    in_prose = bool(re.search("[A-Za-z]", line) or _SENTENCE.match(text, value.end))
    return Field(argument, key, word[0], strong, value, unit, sign, index, in_prose)


def _is_end_of_word(text: str, word: re.Match[str], key: str) -> bool:
    """Return whether a word is the end of a longer word that was cut.

    A word is cut at the end of a terminal's line, or at the start of the text.
    """
    before = text[max(0, word.start() - 80) : word.start()]
    cut = _CUT_WORD.search(before)
    whole = cut and meaning_of(cut[1] + word[0])
    # No printout begins with strides, so "Strides" at the start of the text is the end of
    # "globalStrides".
    starts = key in ("stride", "strides") and not before.strip()
    return starts or bool(whole and whole[1] != key)


# -- blocks ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Block:
    """The fields of one printout, and its heading.

    If `is_mixed` is true, the lines may come from several processes, so no number of the block is
    read. If `is_broken` is true, the rest of a broken list follows the last field.
    """

    heading: str = ""
    first_line: int = 0
    last_line: int = 0
    fields: list[Field] = field(default_factory=list)
    is_mixed: bool = False
    is_broken: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether the text ends within the block."""
        return (self.heading != "" or len(self.fields) > 1) and self.fields[-1].value.fault == "cut"

    def arguments(self, only_strong: bool = False) -> set[str]:
        """Return the arguments of all fields, or only of the fields with a strong word."""
        return {f.argument for f in self.fields if f.strong or not only_strong}

    @property
    def words(self) -> tuple[str, ...]:
        """The keys of the block's fields, each key once, in the order of the text."""
        return tuple(dict.fromkeys(f.key for f in self.fields))

    @property
    def is_whole(self) -> bool:
        """Whether the block has the extents of the tensor and the tile, as every printout has."""
        shown = self.arguments()
        return "global_dim" in shown and bool({"box_dim", "channels_per_pixel"} & shown)

    @property
    def is_prose(self) -> bool:
        """Whether the block is a sentence about a printout, as in "I tried swizzle = 0"."""
        is_line = all(f.in_prose and f.last_line == self.fields[0].line for f in self.fields)
        return is_line and not self.is_whole

    @property
    def shows_arguments(self) -> bool:
        """Whether the block is the printout of an encode instead of unrelated words of a log."""
        strong = self.arguments(only_strong=True)
        own = self.arguments() if form_of(self).words else strong
        return len(strong) >= 2 and bool(own & ARRAYS)


@functools.lru_cache(maxsize=256)
def _forms_with(keys: frozenset[str]) -> tuple[Form, ...]:
    """Return the forms for which `keys` includes at least one of the sets in `any_of`."""
    return tuple(form for form in FORMS if any(together <= keys for together in form.any_of))


def form_of(block: Block) -> Form:
    """Return the form of a block, or `GENERAL` if no known form fits."""
    keys = frozenset(block.words)
    for form in _forms_with(keys):
        # tma_dlpack.h and other code print the driver's names. Only tma_dlpack.h also prints the
        # heading "cuTensorMapEncode..." and the name "tensorDataType".
        own_words = {"tensorDataType"} & {f.word for f in block.fields}
        if form.name == "tma_dlpack.h" and not ("uTensorMapEncode" in block.heading and own_words):
            continue
        # CUTLASS prints the driver's names too, but without a sign between a name and its value.
        if form.name == "CUTLASS":
            spaced = sum(f.sign in ("", " ") for f in block.fields)
            if not {"gmemaddress", "format"} & keys and 2 * spaced <= len(block.fields):
                continue
        return form
    return GENERAL


def blocks_in(streams: list[Lines]) -> list[Block]:
    """Return the blocks of all processes' lines, and mark the mixed blocks.

    Lines without a process may belong to any process. Therefore, if a block of such lines overlaps
    a block of a known process, both blocks are marked as mixed, unless `is_whole` is true for both
    blocks.
    """
    blocks = [(stream.process, block) for stream in streams for block in _blocks_of(stream)]
    named = [block for process, block in blocks if process]
    for block, other in product((b for process, b in blocks if not process), named):
        apart = other.last_line < block.first_line or block.last_line < other.first_line
        if not apart and not (block.is_whole and other.is_whole):
            block.is_mixed = other.is_mixed = True
    return [block for _, block in blocks]


def _blocks_of(stream: Lines) -> list[Block]:
    blocks = [Block()]
    for found in fields_of(stream):
        block = blocks[-1]
        if not found.argument and not found.word:  # the rest of a list
            block.is_broken |= bool(block.fields) and found.line - block.last_line <= 1
            continue
        # If a field follows a broken list, the output is mixed. If the text ends after a broken
        # list, the list is only cut off.
        block.is_mixed |= block.is_broken
        if found.argument:
            _add(blocks, found)
        else:
            blocks.append(Block(found.word, found.line, found.line))
    for block in blocks:
        others = _fields_of_another(block)
        # A sentence about a printout may name an argument by another project's word.
        prose = [f for f in others if f.in_prose]
        block.is_mixed |= len(prose) < len(others)
        block.fields = [f for f in block.fields if f not in prose]
    blocks = [b for b in blocks if b.fields]
    for block in blocks[:-1]:  # the end of the text may have cut a value of the last block
        block.is_mixed |= any(f.value.fault == "broken" for f in block.fields)
    _mark_mixed(blocks)
    return [b for b in blocks if b.shows_arguments or b.is_mixed or b.is_cut]


_WORDS_OF_FORMS = frozenset(word for form in FORMS for word in form.words)


def _fields_of_another(block: Block) -> list[Field]:
    """Return the fields of a block whose words are printed only by other projects."""
    own = form_of(block).words
    # The word at the end of the text may be the start of a longer word, so it is not compared.
    whole = [f for f in block.fields if f.value.numbers or f.value.fault != "cut"]
    others = _WORDS_OF_FORMS.difference(own) if own else ()
    return [f for f in whole if f.strong and f.word in others]


def _add(blocks: list[Block], found: Field) -> None:
    """Add a field to the last block, or to a new block if the field begins another printout."""
    block = blocks[-1]
    gap = found.line - block.last_line
    lone = gap > NEAR_LINES
    if lone and found.strong and not block.arguments(only_strong=True):
        block.fields.clear()  # weak words far above the first strong word are unrelated
        block.first_line = found.line
    far = gap > (FAR_WHOLE_LINES if block.is_whole else FAR_LINES)
    if block.fields and (far or (lone and not found.strong)):
        blocks.append(block := Block())
    named = [f for f in block.fields if f.argument == found.argument and f.place == found.place]
    same = next((f for f in named if f.key == found.key), None)
    # `same` is an earlier field of the block with the same word as the new field, `found`. If the
    # new field has the same value and the same line, it is a repetition, which is skipped. If the
    # new field is on another line or has another value, it begins a new block.
    if same is not None:
        again = same.value[:2] == found.value[:2] and same.line == found.line
        if again or (not found.strong and same.sign != found.sign):
            return
    if same is not None or (found.strong and any(f.strong for f in named)):
        blocks.append(block := Block())
    block.first_line = block.first_line or found.line
    block.last_line = found.last_line
    block.fields.append(found)


def _mark_mixed(blocks: list[Block]) -> None:
    """Mark all blocks of a run as mixed if some blocks lack words that other blocks have.

    A run is a sequence of blocks that are near each other and use the same word for the same
    argument. A printer writes the same words in the same order each time, so missing words mean
    that several processes wrote the lines. The first block of a run may lack its beginning, and the
    last block its end.
    """
    runs: list[list[Block]] = []
    for before, block in pairwise([Block(), *(b for b in blocks if not b.is_prose)]):
        near = FAR_LINES if before.is_mixed else NEAR_LINES
        if runs and block.first_line - before.last_line <= near and _agree(before, block):
            runs[-1].append(block)
        else:
            runs.append([block])
    for run in runs:
        # If each block has one line of its own, the blocks are not mixed.
        one_line_each = all(len({f.line for f in b.fields}) <= 1 for b in run)
        apart = one_line_each and len({b.first_line for b in run}) == len(run)
        if any(b.is_mixed for b in run) or not (apart or _is_regular(run)):
            for block in run:
                block.is_mixed = True


def _agree(a: Block, b: Block) -> bool:
    """Return whether two blocks have the same word for each argument that both blocks show."""
    spelled = [{f.argument: f.word for f in block.fields} for block in (a, b)]
    return all(spelled[0][name] == spelled[1][name] for name in spelled[0].keys() & spelled[1])


def _is_regular(run: list[Block]) -> bool:
    """Return whether blocks have the same words in the same order, except at the run's two ends."""
    # `whole` has all words of the run, in the form's order if the form is known. For a map of rank
    # 1, projects print no strides, and DeepGEMM does not print "base" either. `rank_1` has all
    # words except these.
    order = map(key_of, next((form.words for form in map(form_of, run) if form.words), ()))
    used = dict.fromkeys(key for block in run for key in block.words)
    whole = tuple(dict.fromkeys(key for key in (*order, *used) if key in used))
    rank_1 = tuple(w for w in whole if w != "base" and not ("stride" in w and "elem" not in w))
    return len(run) == 1 or all(
        b.words in (whole, rank_1)
        or (b is run[0] and whole[-len(b.words) :] == b.words)
        or (b is run[-1] and whole[: len(b.words)] == b.words)
        for b in run
    )
