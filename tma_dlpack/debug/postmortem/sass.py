"""Decoder of machine code. It finds TMA and mbarrier instructions, and reads their operands.

The operands of a TMA instruction are in consecutive uniform registers. The instruction has the
numbers of the first registers in bits 32..39 and in bits 24..31. Its opcode, in bits 0..11,
determines which operands these are: a `Coding` lists them. sm_90a, sm_100a, sm_103a, sm_110a and
sm_120a have the same codings. One field differs: the number of the uniform register of SYNCS
(`Instruction.third`) has 6 bits on sm_90a, and 8 bits on the other targets.

Source: the listing by nvdisasm 13.5 of code from ptxas 13.0 (tests/postmortem/codings.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

INSTRUCTION_BYTES = 16
ALWAYS = 7  # the predicate PT, which is always true
ZERO_REGISTER = 255  # RZ
KNOWN_TARGETS = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


def signed(value: int, bits: int) -> int:
    """Return the signed number whose two's complement, in `bits` bits, is `value`."""
    return value - (value >> bits - 1 << bits)


class Coding(NamedTuple):
    """A TMA instruction, and the operands in its uniform registers (attributes of `causes.Use`).

    The operands of `first` begin at the register whose number is in bits 32..39. The operands of
    `second` begin at the register whose number is in bits 24..31. The address of a map or of global
    memory takes two registers. `coordinates` is always the last operand, and takes one register for
    each coordinate. Every other operand takes one register.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


_MAP, _GLOBAL, _SHARED = ("map_address",), ("global_address",), ("shared_address",)
_LOAD, _STORE = (*_SHARED, "barrier", "coordinates"), (*_SHARED, "coordinates")
# names of the instructions that copy from shared memory to global memory
STORES = ("UTMASTG", "UTMAREDG", "UBLKCP.G", "UBLKRED.G")
# opcode -> coding of a tensor copy; each tensor copy has two opcodes, 0x3.. and 0x5..
_CODINGS: Final = {
    form | code: Coding(name, first, _MAP)
    for form in (0x300, 0x500)
    for code, name, first in (
        (0xB4, "UTMALDG", _LOAD),
        (0xB5, "UTMASTG", _STORE),
        (0xB6, "UTMAREDG", _STORE),
        (0xB8, "UTMAPF", ("coordinates",)),
    )
}
#: Bits 73..74 -> coding of a bulk copy without a map (S is shared memory, G is global memory).
_BULK: Final = {
    1: Coding("UBLKCP.S.G", (*_SHARED, "barrier"), _GLOBAL),
    2: Coding("UBLKCP.G.S", _GLOBAL, _SHARED),
    # The source is in shared memory, too. `Use` has no attribute for the address of such a source,
    # so `second` is empty.
    3: Coding("UBLKCP.S.S", (*_SHARED, "barrier"), ()),
}
_BULK_REDUCE: Final = Coding("UBLKRED.G.S", _GLOBAL, _SHARED)
_UBLKCP, _UBLKRED = 0x3BA, 0x3BB
_MODES: Final = ("", ".IM2COL", ".W128", ".W", ".GATHER4")  # index: bits 82..84
_REDUCTIONS: Final = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")  # index: bits 87..89
# opcodes of SYNCS on an mbarrier: test_wait or try_wait, arrive or expect_tx, init
_PHASECHK, _ARRIVE, _EXCH = 0x5A7, 0x9A7, 0x5B2
#: Bits 84..86 of an arrival -> modifier in its name. ``A`` is followed by the number of arrivals,
#: and ``T`` by the number of bytes. R stands for the value of the register operand.
_ARRIVALS: Final = {0: "", 1: ".A1T0", 2: ".A0TX", 3: ".A0TR", 5: ".ART0"}
# Opcodes of control flow. The threads of a warp wait for each other at BSYNC. Then they continue
# together at an instruction, whose distance is in BSSY.
_EXIT, BSSY, BSYNC = 0x94D, 0x945, 0x941
_BRANCHES: Final = (0x947, 0x547)
_NO_RETURN: Final = (0x950, 0x949)  # RET, BRX
# opcode -> name of an instruction at which warps wait, sleep or trap, or which initialises an
# mbarrier
_OTHERS: Final = {
    0x31D: "BAR",
    0xB1D: "BAR",
    0xDC7: "UCGABAR_WAIT",
    0x95D: "NANOSLEEP",
    0x95C: "BPT",
    BSYNC: "BSYNC",
    0x948: "WARPSYNC",
    0x348: "WARPSYNC",
    _EXCH: "SYNCS.EXCH.64",
}
#: Opcodes of instructions that write no register. Their bits 16..23 are not the number of a target
#: register.
_NO_TARGET: Final = frozenset(
    (
        *_BRANCHES, _EXIT, BSSY, BSYNC, 0x95D, 0x918, 0x948, 0xB1D, 0x31D, 0x992, 0x98F,
        0x20A, 0x20B, 0x80B, 0xC0B, 0x20C, 0x80C, 0xC0C, 0x28C, 0x88C, 0x81C, 0x81E,  # predicates
        0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0x3C6, 0x91A, 0x946, 0x9C5, 0x9C7,  # stores
    )
)  # fmt: skip
#: Opcodes of instructions that write a uniform register, whose number is in bits 16..23. Bits 8..11
#: of an opcode tell the kinds of the operands, such as registers or constants.
_UNIFORM: Final = frozenset(
    kind << 8 | code
    for kind in (2, 7, 8, 9, 10, 12)
    for code in (
        0x82, 0x86, 0x87, 0x8F, 0x90, 0x91, 0x92, 0x96, 0x97, 0x99, 0xA4, 0xA5, 0xAC, 0xB9, 0xBD,
        0xBF, 0xC3, 0xCA,
    )
)  # fmt: skip
#: Opcodes of instructions that write one register, such as moves, sums, shifts, logic and
#: comparisons. An instruction in none of these sets is assumed to write two registers.
_SHORT: Final = frozenset(
    kind << 8 | code
    for kind in (2, 4, 8, 9, 10, 12)
    for code in (0x02, 0x10, 0x11, 0x12, 0x16, 0x17, 0x19, 0x24, 0x07, 0x0C)
) | {0x919, 0x9A7}
#: Opcodes of loads of up to 128 bits, which write up to four registers.
_LONG: Final = frozenset((0x981, 0x984, 0x980, 0x983, 0x23B, 0x83B, 0xB82))
# low 8 bits of the opcodes of HGMMA, which are equal in all its forms; HGMMA writes up to 128
# registers
_MATRIX: Final = 0xF0
# opcodes of block barriers, stores and the cluster barrier; a loop that only waits has none of them
_WORK: Final = frozenset((0xB1D, 0x31D, 0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0xDC7))
# opcodes of instructions that write two uniform registers
_WIDE: Final = (0x2A5, 0x8A5)
# opcodes of loads from constant memory (ULDC, LDCU); a load of 64 bits writes two uniform registers
_LOADS: Final = (0xAB9, 0x7AC)


class _Bits:
    """A Python descriptor for a field of `count` bits, which begins at bit `first`."""

    def __init__(self, first: int, count: int) -> None:
        self.first: int = first
        self.count: int = count

    def __get__(self, of: Instruction, kind: type) -> int:
        word = of.high if self.first >= 64 else of.low
        return word >> self.first % 64 & (1 << self.count) - 1


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decoded instruction of 128 bits."""

    low: int
    high: int
    major: int

    opcode: ClassVar[_Bits] = _Bits(0, 12)
    # predicate that decides whether the instruction runs; `ALWAYS` if it always runs
    guard: ClassVar[_Bits] = _Bits(12, 4)
    # convergence register of a BSSY or BSYNC
    convergence: ClassVar[_Bits] = _Bits(16, 4)
    # register, or uniform register, that receives the result
    target: ClassVar[_Bits] = _Bits(16, 8)
    # numbers of the operands' registers, which are uniform registers in TMA and other uniform
    # instructions
    second: ClassVar[_Bits] = _Bits(24, 8)
    first: ClassVar[_Bits] = _Bits(32, 8)
    # constant operand, in instructions that have a constant in place of `first`; in a BSSY, the
    # distance in bytes from the next instruction to the place where the threads of the warp
    # continue together
    constant: ClassVar[_Bits] = _Bits(32, 32)
    # operation of a reduction, which is an index in `_REDUCTIONS`
    operation: ClassVar[_Bits] = _Bits(87, 3)

    @property
    def third(self) -> int:
        """Number of a third uniform register: bits 64..69 on sm_90, bits 64..71 on later GPUs."""
        return self.high & (0x3F if self.major == 9 else 0xFF)

    @property
    def immediate(self) -> int:
        """Number of bytes that a SYNCS adds to its address (bits 40..63, signed)."""
        return signed(self.low >> 40, 24)

    @property
    def coding(self) -> Coding | None:
        """Coding of a TMA instruction; None for other instructions."""
        if self.opcode == _UBLKCP:
            return _BULK.get(self.high >> 9 & 3)
        return _BULK_REDUCE if self.opcode == _UBLKRED else _CODINGS.get(self.opcode)

    @property
    def has_map(self) -> bool:
        """Whether the instruction copies with a tensor map."""
        return self.opcode in _CODINGS

    @property
    def rank(self) -> int:
        """Rank of a tensor copy: 1 plus the number in bits 79..81."""
        return (self.high >> 15 & 7) + 1

    @property
    def mode(self) -> str:
        """Mode of a tensor copy, as in the instruction's name: "", ".IM2COL", ".GATHER4", ..."""
        # in a store, code 2 means .SCATTER4
        code = self.high >> 18 & 7
        if self.opcode in (0x5B5, 0x3B5) and code == 2:
            return ".SCATTER4"
        return _MODES[code] if code < len(_MODES) else f".MODE{code}"

    @property
    def coordinates(self) -> int:
        """Number of coordinates; 5 (a column and 4 row indices) for a copy of 4 rows."""
        return 5 if self.mode in (".GATHER4", ".SCATTER4") else self.rank

    @property
    def is_multicast(self) -> bool:
        """Whether the copy writes to several blocks of the cluster."""
        return self.opcode in (0x3B4, _UBLKCP) and bool(self.high >> 11 & 1)

    @property
    def reduction(self) -> str:
        """Operation of a reducing tensor copy, such as "ADD"; "" for other instructions."""
        return _REDUCTIONS[self.operation] if self.opcode in (0x5B6, 0x3B6) else ""

    @property
    def is_wait(self) -> bool:
        """Whether the instruction tests a phase of an mbarrier (test_wait, try_wait)."""
        return self.opcode == _PHASECHK

    @property
    def is_arrival(self) -> bool:
        """Whether the instruction arrives at an mbarrier, or changes its pending bytes."""
        return self.opcode == _ARRIVE

    @property
    def is_init(self) -> bool:
        """Whether the instruction initialises an mbarrier."""
        return self.opcode == _EXCH

    @property
    def is_matrix(self) -> bool:
        """Whether the instruction is an HGMMA of any form."""
        return self.opcode & 0xFF == _MATRIX

    @property
    def arrival(self) -> str:
        """Modifier of an arrival, as in `_ARRIVALS`; "" is an arrive.expect_tx."""
        return _ARRIVALS.get(self.high >> 20 & 7, "")

    @property
    def name(self) -> str:
        """Name of the instruction in nvdisasm's listings; "" if this decoder has no name for it."""
        coding = self.coding
        multicast = ".MULTICAST" if self.is_multicast else ""
        if coding is not None and self.has_map:
            level = ".L2" if coding.name == "UTMAPF" else ""
            operation = f".{self.reduction}" if self.reduction else ""
            return f"{coding.name}{level}.{self.rank}D{self.mode}{operation}{multicast}"
        if coding is not None:
            return coding.name + multicast
        if self.is_wait:
            return "SYNCS.PHASECHK.TRANS64" + (".TRYWAIT" if self.high >> 8 & 1 else "")
        if self.is_arrival:
            return f"SYNCS.ARRIVE.TRANS64{'.RED' if self.high >> 10 & 1 else ''}{self.arrival}"
        return "HGMMA" if self.is_matrix else _OTHERS.get(self.opcode, "")

    @property
    def writes_uniform(self) -> range:
        """Numbers of the uniform registers that the instruction writes."""
        if self.opcode not in _UNIFORM:
            return range(0)
        # bits 73..75 encode the size of a load, and 5 means 64 bits
        is_wide = self.opcode in _WIDE or (self.opcode in _LOADS and self.high >> 9 & 7 == 5)
        return range(self.target, self.target + 1 + is_wide)

    @property
    def writes(self) -> range:
        """Numbers of the registers that the instruction may write; the range may be too large."""
        is_other = self.coding is not None or self.is_wait or self.opcode in _NO_TARGET
        if is_other or self.target == ZERO_REGISTER or self.writes_uniform:
            return range(0)
        short, long = self.opcode in _SHORT, self.opcode in _LONG
        count = 128 if self.is_matrix else 4 if long else 1 if short else 2
        return range(self.target, self.target + count)

    @property
    def branch(self) -> int | None:
        """Bytes from the next instruction to a branch's target; None for other instructions."""
        if self.opcode not in _BRANCHES:
            return None
        # the distance, in units of 4 bytes, has 56 bits: bits 16..23, bits 34..63 and bits 64..81
        return 4 * signed(self.target | self.low >> 34 << 8 | (self.high & 0x3FFFF) << 38, 56)

    @property
    def does_work(self) -> bool:
        """Whether the instruction does more than wait; for example, it is a copy or an arrival."""
        is_other = self.is_arrival or self.is_matrix or self.opcode in _WORK
        return is_other or self.coding is not None

    @property
    def set_scoreboards(self) -> tuple[int, int]:
        """Scoreboards that are set until the write, and until the reads, are done; 7 means none."""
        return self.high >> 46 & 7, self.high >> 49 & 7

    @property
    def needed_scoreboards(self) -> tuple[int, ...]:
        """Scoreboards for which the instruction waits; scoreboard n is bit 116 + n."""
        return tuple(n for n in range(6) if self.high >> 52 + n & 1)

    @property
    def ends(self) -> bool:
        """Whether a thread never continues with the next instruction in memory."""
        # an EXIT, branch or return without a predicate is always taken
        return self.guard == ALWAYS and self.opcode in (_EXIT, 0x947, *_NO_RETURN)
