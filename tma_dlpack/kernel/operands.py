"""Parse the operands of PTX instructions.

A register or a name becomes a `Reg`, a number becomes an int, and ``_`` becomes None. All other
operands become tuples:

- ``("address", base, offset)`` for ``[base + offset]``;
- ``("sum", base, offset)`` for ``base + offset``;
- ``("vector", [...])`` for ``{a, b}``;
- ``("tuple", [...])`` for ``[map, {x, y}]``;
- ``("list", [...])`` for ``(a, b)``;
- ``("pair", a, b)`` for ``d|p``;
- ``("special", name)`` for ``%tid.x``;
- ``("not", reg)`` for ``!p``;
- ``("unknown", text)`` for other texts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from tma_dlpack.ptx.parse import Instruction


class Reg(NamedTuple):
    """A register, or the name of a variable, a parameter or a function."""

    name: str


# _NUMBER matches integers such as "-0x1F", "0b101" and "42U". _FLOAT matches the bits of a float,
# such as "0f3F800000". _DECIMAL matches decimal floats such as "1.5e3".
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_FLOAT = re.compile(r"(-?)0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})")
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")
_SPECIAL = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clusterid|nclusterid|"
    r"cluster_ctaid|cluster_nctaid|cluster_ctarank|cluster_nctarank|is_explicit_cluster|"
    r"clock|clock64|clock_hi|globaltimer|globaltimer_lo|globaltimer_hi|dynamic_smem_size|"
    r"total_smem_size|aggr_smem_size|lanemask_\w+|pm\d+|envreg\d+|reserved_smem_offset_\w+|"
    r"current_graph_exec)(?:\.[xyzw])?"
)
# _NAME matches a name such as "%r12". _SUM matches a sum such as "buffer+16".
_NAME = re.compile(r"[%A-Za-z_$][\w$#]*")
_SUM = re.compile(r"([%A-Za-z_$][\w$#]*)\s*([+-])\s*(-?\w+)")


def number_of(text: str) -> int | None:
    """Return the value of a PTX integer, or the bits of a PTX float; None for other texts."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        digits = text.rstrip("U")
        sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits)
        if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
            # A leading 0 means octal, as in C.
            return sign * int(digits, 8)
        return sign * int(digits, 0)
    found = _FLOAT.fullmatch(text)
    if found:
        bits = int(found[3], 16)
        if found[1]:
            bits ^= 1 << (31 if found[2] in "fF" else 63)
        return bits
    if _DECIMAL.fullmatch(text):
        return struct.unpack("<Q", struct.pack("<d", float(text)))[0]  # type: ignore[no-any-return]
    return None


_MEETS = ("bar.", "barrier.sync", "barrier.red", "barrier.arrive", "barrier.cta", "cp.async.bulk")
#: Opcodes that end the search of `is_in_flight`, either because they complete the load or because
#: they end the basic block. mbarrier.arrive completes earlier loads. mbarrier.arrive.expect_tx is
#: excluded, because a thread executes it just before the thread issues its own copy.
_SHOWS_OR_LEAVES = re.compile(
    r"mbarrier\.arrive(?!\.expect_tx)|fence|membar|bra\b|brx\b|call\b|ret\b|exit\b"
)


def is_in_flight(read: Instruction, code: Sequence[Instruction]) -> bool:
    """Return whether a load may be incomplete when a later barrier or bulk copy executes.

    The load may be incomplete if no instruction between the load and the barrier or bulk copy uses
    the loaded value. The reason is that a barrier of threads does not wait for loads. But an
    arrival at an mbarrier completes the thread's earlier loads, because the arrival follows the
    loads on the same path to shared memory. These facts are measured (H100, 2026-11-24;
    ``tests/lint/on_gpu.cu``, `read_block_wrong` and `read_arrived_wrong`).
    """
    values = set(_NAME.findall(read.operands.partition("[")[0]))
    place = next(n for n, other in enumerate(code) if other is read)
    for later in code[place + 1 :]:
        if later.opcode.startswith(_MEETS):
            return True
        if _SHOWS_OR_LEAVES.match(later.opcode):
            return False
        if not values.isdisjoint([later.guard, *_NAME.findall(later.operands)]):
            return False
    return False


def operands_of(code: Instruction) -> list[Any]:
    """Return the operands of an instruction in the forms that this module's docstring lists."""
    return [operand(text) for text in code.split()] if code.operands.strip() else []


def operand(text: str) -> Any:
    """Return one operand in the form that this module's docstring lists."""
    text = text.strip()
    if text == "_":
        return None
    if text[:1] == "{":
        return ("vector", [operand(part) for part in _parts(text[1:-1])])
    if text[:1] == "(":
        return ("list", [operand(part) for part in _parts(text[1:-1])])
    if text[:1] == "[":
        parts = [operand(part) for part in _parts(text[1 : text.rindex("]")])]
        if len(parts) == 1:
            return _address(parts[0])
        return ("tuple", [_address(parts[0]), *parts[1:]])
    if text[:1] == "!":
        return ("not", operand(text[1:]))
    number = number_of(text)
    if number is not None:
        return number
    if "|" in text:
        first, second = text.split("|", 1)
        return ("pair", operand(first), operand(second))
    if _SPECIAL.fullmatch(text):
        return ("special", text)
    found = _SUM.fullmatch(text)
    if found:
        offset = number_of(found[3]) or 0
        base = operand(found[1])
        return ("sum", base, -offset if found[2] == "-" else offset)
    if _NAME.fullmatch(text):
        return Reg(text)
    return ("unknown", text)


def _address(part: Any) -> Any:
    if isinstance(part, tuple) and not isinstance(part, Reg) and part[0] == "sum":
        return ("address", part[1], part[2])
    return ("address", part, 0)


def _parts(text: str) -> list[str]:
    """Split a text at the commas that are outside of brackets."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(text[start:at])
            start = at + 1
    found.append(text[start:])
    return [part for part in found if part.strip()]
