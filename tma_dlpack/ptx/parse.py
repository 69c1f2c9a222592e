"""Parser of PTX, which returns the functions of a text and the instructions of each function.

Inline assembly declares names inside of braces, such as `{ .reg .pred p; LAB_WAIT: ... }`. The
parser adds a suffix to such a name (`p#12`), so that two copies of the same inline assembly have
different names. The parser accepts unknown instructions. It skips a function if a closing brace is
missing, and adds the function's name to `Module.unread`.

Source: PTX ISA 9.0, chapters 4 (syntax), 5 (state spaces), 6 (operands), 11.2 (.loc).
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

#: Source lines of an instruction as (file, line). An instruction of an inlined function has several
#: source lines: its own line first, then the lines of the calls.
Place = tuple[tuple[str, int], ...]


@dataclass(eq=False, slots=True)
class Instruction:
    """An instruction ``@[!]guard opcode operands`` with its lines in the PTX and in the source."""

    guard: str
    negated: bool
    opcode: str
    operands: str
    line: int
    place: Place
    # Cached result of `values.written`.
    writes: list[str] | None = None

    def split(self) -> list[str]:
        """Return the texts of the operands; a vector or an address in brackets is one operand."""
        if not _BRACKETS.intersection(self.operands):
            return [word.strip() for word in self.operands.split(",")]
        return [word.strip() for word in _OPERAND.findall(self.operands) if word.strip()]

    def address(self, index: int = 0) -> str:
        """Return the text inside one pair of brackets of the operands.

        `index` is the number of the pair, counted from 0. Return "" if there is no such pair.
        """
        found = _IN_BRACKETS.findall(self.operands)
        return found[index] if index < len(found) else ""


_BRACKETS = frozenset("[{(")
# An operand such as "%r1", "{%r1, %r2}", "[%rd1, {%r1, %r2}]" or "(param0)".
_OPERAND = re.compile(r"(?:\[(?:[^\[\]{}]|\{[^{}]*\})*\]|\{[^{}]*\}|\([^()]*\)|[^,\[\]{}()])+")
# The text in brackets: "tile+16" in "[ tile+16 ]".
_IN_BRACKETS = re.compile(r"\[\s*([^\[\]]*?)\s*\]")


@dataclass(slots=True)
class Block:
    """A basic block with the indices of the blocks that may follow it.

    `branch` describes a conditional branch at the block's end as (index of the target, guard,
    negated).
    """

    code: list[Instruction]
    # Indices of the branch targets. If the block can continue without a branch, the last index is
    # the next block in the text.
    next: list[int] = field(default_factory=list)
    branch: tuple[int, str, bool] | None = None


@dataclass
class Function:
    """A function with a body; `symbols` maps the names that the body declares to state spaces."""

    name: str
    is_entry: bool
    header: str
    line: int
    code: list[Instruction]
    labels: dict[str, int]
    symbols: dict[str, str]
    parameters: tuple[str, ...]
    #: Register -> declared type such as "b32". The declaration ".reg .b32 %r<8>" of several
    #: registers has the key "%r<".
    registers: dict[str, str] = field(default_factory=dict)
    alignments: dict[str, int] = field(default_factory=dict)

    @cached_property
    def blocks(self) -> list[Block]:
        """Control-flow graph of the function; block 0 is the entry."""
        # A block begins at each label, and after each branch, return or trap.
        ends = {0, len(self.code), *self.labels.values()}
        ends |= {n + 1 for n, code in enumerate(self.code) if _ENDS.match(code.opcode)}
        starts = sorted(ends)
        number = {start: n for n, start in enumerate(starts)}
        blocks = []
        for n, (start, end) in enumerate(itertools.pairwise(starts)):
            block = Block(self.code[start:end])
            blocks.append(block)
            last = block.code[-1]
            passes = not _ENDS.match(last.opcode) or bool(last.guard)
            falls = [n + 1] if passes and end < len(self.code) else []
            jumps = self._jumps(last, number)
            block.next = [*jumps, *falls]
            if jumps and last.guard and last.opcode.startswith("bra") and jumps != falls:
                block.branch = jumps[0], last.guard, last.negated
        return blocks

    def _jumps(self, last: Instruction, number: dict[int, int]) -> list[int]:
        """Return the indices of a branch's target blocks.

        If the table of a brx.idx is not known, return the blocks of all labels.
        """
        words = last.split()
        if last.opcode.startswith("brx"):
            table = self.symbols.get(words[-1], "") if words else ""
            words = table.split() or [*self.labels]
        elif not _ENDS.match(last.opcode):
            return []
        # A label after the last instruction of the function has no block.
        targets = {number[self.labels[name]] for name in words if name in self.labels}
        return sorted(target for target in targets if target < len(number) - 1)


@dataclass(frozen=True)
class Module:
    """The contents of a PTX module.

    `alignments` maps declared names to alignments in bytes. `unsized` has the names of the arrays
    that are declared without a size; they begin at the start of dynamic shared memory. `comments`
    maps line numbers to the comments that suppress findings of lint. `unread` has the names of the
    functions that could not be parsed.
    """

    functions: tuple[Function, ...]
    symbols: dict[str, str]
    target: str
    unread: tuple[str, ...]
    comments: dict[int, str]
    alignments: dict[str, int] = field(default_factory=dict)
    unsized: frozenset[str] = frozenset()


# A comment "// ..." or "/* ... */", or a string. Strings are matched because "//" in a string is no
# comment.
_COMMENT = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*"', re.DOTALL)
#: ".visible .entry name(...)" up to the next brace, the next ";" or the end of the text. The
#: pattern reads each character only once. Quantifiers here and below have limits, because otherwise
#: a hostile text could make the search slow.
_HEADER = re.compile(
    r"(?<![\w.])((?:\.(?:visible|extern|weak|common)\s{1,9}){0,4}\.(?:entry|func)\b[^{};]*)"
    r"([{};]|\Z)"
)
# The name of the function in a header: "f" in ".func (.param .b32 result) f (...)".
_FUNCTION_NAME = re.compile(
    r"\.(?:entry|func)(?:\s*\.\w+)*\s*(?:\([^()]*\)\s*)?([A-Za-z_$%][\w$]*)"
)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d{1,9})[ \t]+"([^"\n]*)"', re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_TARGET = re.compile(r"(?<![\w.])\.target\s+(\w+)")
# A declaration outside of functions, such as ".shared .align 16 .b8 tile[4096];".
_SYMBOL = re.compile(
    r"(?:^|(?<=[;}\s]))\.(shared|global|const|local)\b[^;={\n]{0,200}?"
    r"(?<![\w$%])([A-Za-z_$%][\w$]{0,999})[ \t]{0,99}(?:\[[^;={\n]{0,99}\])?[ \t]{0,99}[;={]",
    re.MULTILINE,
)
_ALIGN = re.compile(r"\.align\s+(\d{1,6})")
_TYPE = re.compile(r"(?:\.v([248])\s+)?\.[bsuf](8|16|32|64|128)\b")
# The end of an array declaration without a size, such as "smem[];".
_UNSIZED = re.compile(r"\[\s*\]\s*;$")
# A brace, a label "$L1:", a ".loc 1 20 3", or an instruction or declaration up to ";". An
# instruction may have braces around a vector.
_STATEMENT = re.compile(
    r"\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)"
    r"|\.loc\s+(?P<loc>\d+\s+\d+\s+\d+[^\n;]*)"
    r"|(?P<text>[^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);)"
)
# An instruction such as "@!%p1 bra $L1". The groups are "!", guard, opcode, operands.
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_DECLARED = re.compile(r"\.(reg|shared|local|param|branchtargets|global|const)\b(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
# A name that may be declared inside of braces. The pattern does not match registers such as "%r1"
# or parts of an opcode.
_LOCAL_NAME = re.compile(r"(?<![\w.$%:])[A-Za-z_$%][\w$]*")
# "inlined_at 1 20 3" in a .loc. The groups are file, line and column of the call.
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_ENDS = re.compile(r"(?:bra|brx\.idx|ret|exit|trap)\b")
# The name of a parameter: "map" in ".param .align 64 .b8 map[128],".
_PARAMETER = re.compile(r"\.param\b[^,()]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\])?\s*(?=[,)])")


def modules(source: str) -> Iterator[Module]:
    """Yield the modules of a text.

    A text that was extracted from a binary may have several modules. Each module begins with
    .version.
    """
    starts = [match.start() for match in _VERSION.finditer(source)][1:]
    line = 0
    for start, end in zip([0, *starts], [*starts, len(source)], strict=True):
        yield parse(source[start:end], line)
        line += source.count("\n", start, end)


def parse(source: str, line_before: int = 0) -> Module:
    """Parse a text with one module; `line_before` is the number of lines before the text."""
    comments: dict[int, str] = {}
    text = _without_comments(source, comments)
    files = {int(number): name for number, name in _FILE.findall(source)}
    lines = [match.start() for match in re.finditer("\n", text)]
    functions, unread, outside, end = [], [], [], 0
    for header in _HEADER.finditer(text):
        # Skip a declaration without a body. Also skip a header inside of the body of the previous
        # function.
        if header[2] != "{" or header.start() < end:
            continue
        outside.append(text[end : header.start()])
        line = bisect_right(lines, header.start(1)) + 1 + line_before
        function, end = _function(text, header, line, files)
        if function is None:
            unread.append(_name(header[1]))
        else:
            functions.append(function)
    outside.append(text[end:])
    target = _TARGET.search(text)
    declared = [match for part in outside for match in _SYMBOL.finditer(part)]
    symbols = {match[2]: match[1] for match in declared}
    alignments = {match[2]: alignment(match[0]) for match in declared}
    unsized = frozenset(match[2] for match in declared if _UNSIZED.search(match[0]))
    comments = {line_before + line: text for line, text in comments.items()}
    return Module(tuple(functions), symbols, target[1] if target else "", tuple(unread), comments,
                  alignments, unsized)  # fmt: skip


def alignment(declaration: str) -> int:
    """Return the alignment in bytes of a declared variable; the default is the size of its type.

    >>> alignment(".shared .align 128 .b8 tile[4096]"), alignment(".shared .u64 barrier")
    (128, 8)
    """
    aligned, kind = _ALIGN.search(declaration), _TYPE.search(declaration)
    if aligned:
        return max(int(aligned[1]), 1)
    return int(kind[2]) // 8 * int(kind[1] or 1) if kind else 1


def _without_comments(source: str, comments: dict[int, str]) -> str:
    """Return the text without the contents of comments and strings.

    Add the comments that suppress findings to `comments`. The newlines stay, so that line numbers
    do not change.
    """
    # `at` is [position, line] of the last suppression. The line of the next suppression is counted
    # from this position, so that each newline is counted only once.
    at = [0, 1]

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if "lint:" in found and found[0] == "/":
            at[:] = match.start(), at[1] + source.count("\n", at[0], match.start())
            comments[at[1]] = found
        return "\n" * found.count("\n") if found[0] == "/" else '""'

    return _COMMENT.sub(blank, source)


def _name(header: str) -> str:
    """Return the name of the function that a header declares."""
    found = _FUNCTION_NAME.search(header)
    return found[1] if found else "(no name)"


class _Reader:
    """Parser of the body of one function."""

    def __init__(self, files: dict[int, str]) -> None:
        self.files = files
        # One dictionary for each open brace: declared name -> name with a suffix.
        self.scopes: list[dict[str, str]] = [{}]
        self.opened = 0
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.symbols: dict[str, str] = {}
        self.registers: dict[str, str] = {}
        self.alignments: dict[str, int] = {}
        # (file, line, column) of a .loc -> source lines of the .loc. A later .loc refers to these
        # source lines with inlined_at.
        self.places: dict[tuple[str, ...], Place] = {}
        self.place: Place = ()
        # Branches inside of braces, each with the scopes that are open at the branch. The label of
        # a branch may be declared after it, so labels are looked up at the end of the function.
        self.waiting: list[tuple[Instruction, list[dict[str, str]]]] = []

    def locate(self, loc: str) -> None:
        """Parse a .loc, which sets the source lines of the next instructions.

        Line 0 means "no line". In this case, do not change the source lines.
        """
        words = loc.split(None, 3)
        file, line, column = words[0], words[1], words[2].rstrip(",")
        if line == "0" or max(len(file), len(line)) > _MOST_DIGITS:
            return
        inlined = _INLINED.search(loc)
        outer = (
            self.places.get(inlined.groups(), self._at(inlined[1], inlined[2])) if inlined else ()
        )
        self.place = (*self._at(file, line), *outer)[:_MOST_INLINED]
        self.places[file, line, column] = self.place

    def _at(self, file: str, line: str) -> Place:
        known = max(len(file), len(line)) <= _MOST_DIGITS
        return ((self.files.get(int(file), f"file {file}"), int(line)),) if known else ()

    def label(self, name: str) -> None:
        self.labels[self.declare(name)] = len(self.code)

    def declare(self, name: str) -> str:
        """Add a name to the innermost scope, and return the name with its suffix."""
        # A name needs no suffix if it is declared outside of inner braces, or if it is a label of
        # nvcc such as "$L1", because these labels are unique.
        if len(self.scopes) == 1 or name.startswith("$"):
            return name
        return self.scopes[-1].setdefault(name, f"{name}#{self.opened}")

    def statement(self, text: str, line: int) -> None:
        declared = _DECLARED.match(text) if text[0] == "." else None
        if declared:
            space, rest = declared.groups()
            # In "$L: .branchtargets a, b;", the label "$L" is the name of the table.
            if space == "branchtargets":
                self.symbols[next(reversed(self.labels), "")] = " ".join(_NAME.findall(rest))
            elif space == "reg":
                kind = rest.split(None, 1)[0].lstrip(".") if rest.split() else ""
                for name, family in re.findall(r"[\s,]([A-Za-z_$%][\w$]*)(<)?", rest):
                    own = name if family else self.declare(name)
                    self.registers[own + family] = kind
            elif name := re.search(
                r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\])?\s*(?:=.*)?$", rest, re.DOTALL
            ):
                own = self.declare(name[1])
                self.symbols[own], self.alignments[own] = space, alignment(rest)
            return
        found = _INSTRUCTION.match(text)
        if found is None:
            return
        negated, guard, opcode, operands = found.groups()
        if len(self.scopes) > 1 and any(self.scopes):
            guard, operands = guard and self._renamed(guard), self._renamed(operands)
        code = Instruction(guard or "", bool(negated), opcode, operands, line, self.place)
        self.code.append(code)
        if opcode.startswith("bra") and len(self.scopes) > 1:
            self.waiting.append((code, list(self.scopes)))

    def _renamed(self, operands: str) -> str:
        def renamed(match: re.Match[str]) -> str:
            name = match[0]
            return next((s[name] for s in reversed(self.scopes) if name in s), name)

        return _LOCAL_NAME.sub(renamed, operands)

    def finish(self) -> None:
        for code, scopes in self.waiting:
            name = code.operands.strip()
            code.operands = next((s[name] for s in reversed(scopes) if name in s), name)


# Maximum number of source lines that are stored for one instruction.
_MOST_INLINED = 24
# Maximum number of digits of a file number and of a line number.
_MOST_DIGITS = 9


def _function(
    text: str, header: re.Match[str], line: int, files: dict[int, str]
) -> tuple[Function | None, int]:
    """Return (function, position after the function).

    The function is None if a closing brace is missing.
    """
    reader, at = _Reader(files), header.end()
    line += text.count("\n", header.start(1), at)
    while match := _STATEMENT.match(text, at):
        start = match.start(match.lastgroup or 0)
        line += text.count("\n", at, start)
        kind = match.lastgroup
        if kind == "text":
            statement = match["text"]
            # If a kernel begins inside of this body, a closing brace of the body is missing.
            if ".entry" in statement and _HEADER.match(text, start):
                return None, start
            if statement:
                reader.statement(statement, line)
        elif kind == "loc":
            reader.locate(match["loc"])
        elif kind == "label":
            reader.label(match["label"])
        elif kind == "open":
            reader.opened += 1
            reader.scopes.append({})
        elif len(reader.scopes) > 1:
            reader.scopes.pop()
        else:
            reader.finish()
            made = Function(
                _name(header[1]), ".entry" in header[1], header[1], line, reader.code,
                reader.labels, reader.symbols, tuple(_PARAMETER.findall(header[1])),
                reader.registers, reader.alignments,
            )  # fmt: skip
            return made, match.end()
        line += text.count("\n", start, match.end())
        at = match.end()
    follows = _HEADER.search(text, at)
    return None, follows.start() if follows else len(text)
