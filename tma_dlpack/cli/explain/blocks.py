"""From fields to blocks: which of them belong to one encode, and which blocks can be trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tma_dlpack.checks.parse import DRIVER_ARGUMENTS
from tma_dlpack.cli.explain.read import (
    CAST,
    LONGEST_LIST,
    Field,
    Lines,
    Value,
    fields_of,
    read_list,
    read_scalar,
)
from tma_dlpack.cli.explain.words import (
    ARRAYS,
    CUTLASS,
    FORMS,
    GENERAL,
    NAMED,
    Entries,
    Form,
)
from tma_dlpack.tables.arguments import MapKind

FAR_LINES = 12  # between two fields of one printout, at most
FAR_WHOLE_LINES = 3  # where the tensor and the tile are there already
NEAR_LINES = 3  # between blocks that touch; a weak word stands no further from its neighbours
FAR_DECLARATION = 40  # lines from an array's declaration to the call that passes it

#: What `DRIVER_ARGUMENTS` calls otherwise than `TensorMap`.
CALL_NAMES: Final = {"tensor_data_type": "data_type", "tensor_rank": "rank"}

# -- blocks ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Block:
    """The fields of one printout.

    `fault` is "" or why its numbers must not be taken: "mixed" or "cut". Fields of one argument are
    several where different words name it.
    """

    heading: str = ""
    first_line: int = 0
    last_line: int = 0
    fields: dict[str, list[Field]] = field(default_factory=dict)
    entries: dict[str, dict[str, Field]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # as printed -> key, in their order
    fault: str = ""
    is_call: bool = False
    has_orphans: bool = False

    def arguments(self) -> set[str]:
        """Return what it shows."""
        return self.fields.keys() | self.entries.keys()

    @property
    def is_whole(self) -> bool:
        """Whether what every printout shows is there: the tensor's extents and the tile's."""
        shown = self.arguments()
        return "global_dim" in shown and bool({"box_dim", "channels_per_pixel"} & shown)

    @property
    def strong(self) -> set[str]:
        """What it shows in strong words."""
        found = {a for a, named in self.fields.items() if any(f.strong for f in named)}
        return found | self.entries.keys()

    @property
    def shows_arguments(self) -> bool:
        """Whether it is the printout of an encode, not words of a log that happen to be there."""
        own = self.strong if not form_of(self).words else self.arguments()
        return len(self.strong) >= 2 and bool(own & ARRAYS)

    @property
    def is_one_line(self) -> bool:
        """Whether nothing can stand between its parts."""
        return len({f.line for f in self.all_fields()}) <= 1

    def all_fields(self) -> list[Field]:
        """Return every field and entry."""
        groups = [*self.fields.values(), *(list(e.values()) for e in self.entries.values())]
        return [found for group in groups for found in group]

    def same(self, found: Field) -> Field | None:
        """Return what stands where a field would go."""
        if found.place is not None:
            return self.entries.get(found.argument, {}).get(found.place)
        return next((f for f in self.fields.get(found.argument, ()) if f.key == found.key), None)

    def numbers(self, name: str) -> Entries:
        """Return the numbers of an argument's first field; none if it has no field."""
        return self.fields[name][0].value.numbers if name in self.fields else ()

    def put(self, found: Field) -> None:
        """Take a field."""
        self.first_line = self.first_line or found.line
        self.last_line = found.last_line
        self.words.setdefault(found.word, found.key)
        if found.place is not None:
            self.entries.setdefault(found.argument, {})[found.place] = found
        else:
            self.fields.setdefault(found.argument, []).append(found)


def form_of(block: Block) -> Form:
    """Return the row of the table that a block fits."""
    keys = frozenset(block.words.values())
    for form in FORMS:
        if not any(together <= keys for together in form.any_of):
            continue
        if form.name == "tma_dlpack.h" and "uTensorMapEncode" not in block.heading:
            continue
        if form is CUTLASS:  # its words are the driver's: lines without a sign before the value
            spaced = [f.separator in ("", " ") for f in block.all_fields()]
            own = {"gmemaddress", "format"} & keys or 2 * sum(spaced) > len(spaced)
            if not own or block.is_call:
                continue
        return form
    return GENERAL


def blocks_in(streams: list[Lines]) -> list[Block]:
    """Gather the fields of each stream in blocks; those that cannot be trusted are marked."""
    blocks = [(stream.process, block) for stream in streams for block in _blocks_of(stream)]
    named = [b for process, b in blocks if process]
    for process, block in blocks:
        for other in named if not process else ():  # a part of it may be among the lines of another
            apart = other.last_line < block.first_line or block.last_line < other.first_line
            if not apart and not (block.is_whole and other.is_whole):
                block.fault = other.fault = "mixed"
    return [block for _, block in blocks]


def _blocks_of(stream: Lines) -> list[Block]:
    blocks = [Block()]
    after = 0
    for place, event in fields_of(stream):
        if place < after:
            continue
        if isinstance(event, Field):
            _add(blocks, event)
            continue
        line = stream.line_at(place)
        blocks.append(Block(event.strip(), line, line))
        call = _call(stream.text, place, event)
        if call is not None:
            found, after = call
            end = stream.line_at(after)
            _fill(blocks, [f._replace(line=line, last_line=end) for f in found])
    blocks = [b for b in blocks if b.fields or b.entries]
    _mark_mixed(blocks)
    return [b for b in blocks if b.shows_arguments or b.fault]


def _add(blocks: list[Block], found: Field) -> None:
    """Put a field into the block it belongs to, the last one or a new one."""
    block = blocks[-1]
    gap = found.line - block.last_line
    lone = gap > NEAR_LINES
    if lone and found.strong and found.argument and not block.strong:
        block.fields.clear()  # weak words further up belong to something else
        block.words.clear()
        block.first_line = found.line
    far = gap > (FAR_WHOLE_LINES if block.is_whole else FAR_LINES)
    if (block.fields or block.entries) and (far or (lone and not found.strong)):
        blocks.append(block := Block(first_line=found.line))
    if found.value.fault == "orphan":
        block.has_orphans |= gap <= NEAR_LINES
        return
    if found.value.fault in ("torn", "cut"):
        if block.fields or block.entries or (block.heading and found.argument):
            block.fault = block.fault or ("cut" if found.value.fault == "cut" else "mixed")
        if not found.argument:
            return
    same = block.same(found)
    if same is not None:
        again = same.value[:2] == found.value[:2] and same.line == found.line
        stray = not found.strong and same.separator != found.separator
        if again or stray:
            return
    others = any(f.strong and f.key != found.key for f in block.fields.get(found.argument, ()))
    if same is not None or (others and found.strong):
        blocks.append(block := Block(first_line=found.line))
    block.put(found)


def _mark_mixed(blocks: list[Block]) -> None:
    """Mark blocks that are not whole among others of their printer: several processes wrote them.

    A printer writes the same words in the same order each time. The first block of a run may lack
    its beginning, and the last one its end.
    """
    for block in blocks:
        over_lines = any(f.last_line > f.line for f in block.all_fields())
        torn = block.fault and block is not blocks[-1]
        if torn or (block.has_orphans and over_lines) or _is_rotated(block):
            block.fault = "mixed"
    runs: list[list[Block]] = []
    for before, block in pairwise([Block(), *blocks]):
        near = block.first_line - before.last_line <= NEAR_LINES
        if runs and near and _same_printer(before, block):
            runs[-1].append(block)
        else:
            runs.append([block])
    for run in runs:
        words = _words_of(run)
        apart = len({block.first_line for block in run}) == len(run)  # a line each
        several = len(run) > 1 and not (apart and all(block.is_one_line for block in run))
        ends = (run[0], run[-1])
        parts = all(_is_part_of(words, b, b is ends[0], b is ends[1]) for b in run)
        if (several and not parts) or any(block.fault == "mixed" for block in run):
            for block in run:
                block.fault = "mixed"


def _is_rotated(block: Block) -> bool:
    """Return whether the end of one printout stands before the beginning of another."""
    names = {CALL_NAMES.get(name, name): i for i, name in enumerate(DRIVER_ARGUMENTS["tiled"])}
    of_word = {f.word: f.argument for f in block.all_fields()}
    places = [names[of_word[word]] for word in block.words if of_word.get(word) in names]
    falls = sum(before > after for before, after in pairwise(places))
    return len(places) >= 8 and falls == 1 and places[-1] < places[0]


def _same_printer(a: Block, b: Block) -> bool:
    if any(set(x.words.values()) <= set(form_of(y).keys) for x, y in ((a, b), (b, a))):
        return True
    spelled = [{f.argument: f.word for f in block.all_fields()} for block in (a, b)]
    return all(spelled[0][name] == spelled[1][name] for name in spelled[0].keys() & spelled[1])


def _words_of(run: list[Block]) -> tuple[str, ...]:
    """Return the words of a whole printout of a run, in their order."""
    used = {key for block in run for key in block.words.values()}
    order = next((form.keys for form in map(form_of, run) if form.keys), ())
    seen = [key for block in run for key in block.words.values()]
    return tuple(dict.fromkeys(key for key in (*order, *seen) if key in used))


def _is_part_of(whole: tuple[str, ...], block: Block, is_first: bool, is_last: bool) -> bool:
    """Return whether a block is a whole printout, or may be cut off where a run begins or ends."""
    words = tuple(block.words.values())
    optional = {w for w in whole if ("stride" in w and "elem" not in w) or w == "base"}  # rank 1
    if words == whole or words == tuple(w for w in whole if w not in optional):
        return True
    begins, ends = whole[: len(words)] == words, whole[-len(words) :] == words
    return (is_first and ends) or (is_last and begins)


# -- calls in pasted source -----------------------------------------------------------------------

_NO_VALUE = re.compile(r"[;=]|^\w+\s*:(?!:)|\w\s+\w")  # a name, a declaration, another line
_ARGUMENTS_OPEN = re.compile(r"[\w:]*\)?\s*\(")
_SIZES = {"double": 8, "float": 4, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}
_SIZEOF = re.compile(r"sizeof\s*\(\s*(\w+)\s*\)")
_CONSTANT = r"\b{}\s*(?:=\s*|\s)(\d+)\s*(?:[;,\n)]|$)"
_DECLARED = r"\b{}\s*(?:\[[^\]\n]*\])?\s*=?\s*(?=[\[{{(])"


def _call(text: str, place: int, heading: str) -> tuple[list[Field], int] | None:
    """Read a call of the driver whose arguments are told by their places; None if it is none."""
    opens = _ARGUMENTS_OPEN.match(text, place + len(heading))
    if opens is None or "ncode" not in heading:
        return None
    arguments, end = _split(text, opens.end())
    count = len(arguments)
    kinds: tuple[MapKind, ...] = ("tiled", "im2col", "im2col_wide")
    kind = next((k for k in kinds if len(DRIVER_ARGUMENTS[k]) in (count, count - 1)), None)
    if kind is None or any(map(_NO_VALUE.search, arguments)):
        return None
    names = DRIVER_ARGUMENTS[kind]
    found = []
    for name, words in zip(names, arguments[count - len(names) :], strict=True):
        argument = CALL_NAMES.get(name, name)
        if argument not in NAMED and "CU_TENSOR_MAP" in words:
            return None  # of another argument: not all of the call is there
        value = _passed(text, place, argument, words)
        if value.numbers or value.word:
            found.append(Field(argument, argument, argument, True, value, separator="call"))
    return found, end


def _split(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of a call that begin at a place, and where they end."""
    depth, begin, arguments = 1, start, []
    for end in range(start, min(len(text), start + 4 * LONGEST_LIST)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0 or (depth == 1 and text[end] == ","):
            arguments.append(text[begin:end].strip())
            begin = end + 1
            if depth == 0:
                return arguments, end
    return [], start


def _passed(text: str, place: int, argument: str, words: str) -> Value:
    """Return the value of an argument: a literal, or what its name was declared with."""
    if argument not in ARRAYS:
        literal = _known(text, place, CAST.sub("", words))
        return read_scalar(literal + ";", 0, argument, argument in NAMED and "CU_" in literal)
    named = re.fullmatch(r"&?([A-Za-z_]\w*)(?:\.data\(\)|\[0\])?(?:\s*\+\s*(\d))?", words)
    if named is None:
        opens = re.search(r"[{\[](?=[^\]}])", words)
        return read_list(_known(text, place, words[opens.start() :]), 0) if opens else Value()
    declared = list(re.finditer(_DECLARED.format(named[1]), text[max(0, place - 8_000) : place]))
    if not declared:
        return Value()
    at = max(0, place - 8_000) + declared[-1].end()
    value = read_list(_known(text, place, text[at : at + LONGEST_LIST]), 0)
    return value._replace(numbers=value.numbers[int(named[2] or 0) :])


def _known(text: str, place: int, words: str) -> str:
    """Return source with the numbers of its constants."""

    def number(name: re.Match[str]) -> str:
        if name[0].startswith("CU") or not name[0].isidentifier():
            return name[0]
        nearby = text[max(0, place - 8_000) : place]
        values = set(re.findall(_CONSTANT.format(name[0]), nearby))
        return values.pop() if len(values) == 1 else name[0]

    words = _SIZEOF.sub(lambda m: str(_SIZES.get(m[1], m[0])), words.partition(";")[0])
    return re.sub(r"[A-Za-z_]\w*", number, words)


def _fill(blocks: list[Block], found: list[Field]) -> None:
    """Put a call's arguments into the last block, with those of declarations just before it."""
    call = blocks[-1]
    call.is_call = True
    for argument in found:
        call.put(argument)
    if len(blocks) < 2 or call.first_line - blocks[-2].last_line > FAR_DECLARATION:
        return
    declared = blocks[-2]
    for name in ("global_dim", "box_dim"):
        pairs = zip(call.numbers(name), declared.numbers(name), strict=False)
        if any(a != b and None not in (a, b) for a, b in pairs):
            return  # those of another encode
    call.fields = {**declared.fields, **call.fields}
    call.entries = {k: v for k, v in declared.entries.items() if k not in call.fields}
    call.words = {**declared.words, **call.words}
    call.first_line = declared.first_line or call.first_line
    blocks.pop(-2)
