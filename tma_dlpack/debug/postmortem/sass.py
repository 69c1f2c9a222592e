"""A decoder of machine code: the instructions of TMA and mbarriers, and their operands.

Each row maps an opcode (bits 0..11) to the meaning of the uniform registers that bits 32..39 and
bits 24..31 name. The codings of sm_90a, 100a, 103a, 110a and 120a are the same, except for the
uniform register of SYNCS (6 bits on sm_90, 8 bits later).

Source: nvdisasm 13.5's listing of code from ptxas 13.0 (tests/postmortem/codings.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

INSTRUCTION_BYTES = 16
ALWAYS = 7  # the guard PT
ZERO_REGISTER = 255  # RZ
KNOWN_TARGETS = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


def signed(value: int, bits: int) -> int:
    """Return the two's complement number that the low `bits` bits of `value` are."""
    return value - (value >> bits - 1 << bits)


class Coding(NamedTuple):
    """A TMA instruction, and the operands in its uniform registers, as names of `causes.Use`.

    The operands of `first` begin at the register that bits 32..39 name, those of `second` at the
    register that bits 24..31 name. The address of a map or of global memory takes two registers;
    `coordinates` takes all registers that follow.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


_MAP, _GLOBAL, _SHARED = ("map_address",), ("global_address",), ("shared_address",)
_LOAD, _STORE = (*_SHARED, "barrier", "coordinates"), (*_SHARED, "coordinates")
# instructions that read shared memory: their address in shared memory is the source
STORES = ("UTMASTG", "UTMAREDG", "UBLKCP.G", "UBLKRED.G")
# tensor copies by opcode; each has two forms, 0x3.. and 0x5..
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
#: Bulk copies without a map, by bits 73..74: global to shared, shared to global, shared to shared.
_BULK: Final = {
    1: Coding("UBLKCP.S.G", (*_SHARED, "barrier"), _GLOBAL),
    2: Coding("UBLKCP.G.S", _GLOBAL, _SHARED),
    # its source is in shared memory, too, and has no name in `Use`
    3: Coding("UBLKCP.S.S", (*_SHARED, "barrier"), ()),
}
_BULK_REDUCE: Final = Coding("UBLKRED.G.S", _GLOBAL, _SHARED)
_UBLKCP, _UBLKRED = 0x3BA, 0x3BB
_MODES: Final = ("", ".IM2COL", ".W128", ".W", ".GATHER4")  # bits 82..84
_REDUCTIONS: Final = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")  # bits 87..89
# SYNCS on an mbarrier: test or try_wait, arrive or expect_tx, init
_PHASECHK, _ARRIVE, _EXCH = 0x5A7, 0x9A7, 0x5B2
#: Forms of an arrival by bits 84..86: ``A`` is the number of arrivals, ``T`` the bytes; 0, 1, or R
#: (the value of the register operand).
_ARRIVALS: Final = {0: "", 1: ".A1T0", 2: ".A0TX", 3: ".A0TR", 5: ".ART0"}
# BSSY names the place where the threads of a warp meet again, BSYNC waits there
_EXIT, BSSY, BSYNC = 0x94D, 0x945, 0x941
_BRANCHES: Final = (0x947, 0x547)
_NO_RETURN: Final = (0x950, 0x949)  # RET, BRX
# names of other instructions at which warps wait, sleep or trap, by opcode
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
#: Instructions that write no register; their bits 16..23 have another meaning.
_NO_TARGET: Final = frozenset(
    (
        *_BRANCHES, _EXIT, BSSY, BSYNC, 0x95D, 0x918, 0x948, 0xB1D, 0x31D, 0x992, 0x98F,
        0x20A, 0x20B, 0x80B, 0xC0B, 0x20C, 0x80C, 0xC0C, 0x28C, 0x88C, 0x81C, 0x81E,  # predicates
        0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0x3C6, 0x91A, 0x946, 0x9C5, 0x9C7,  # stores
    )
)  # fmt: skip
#: Instructions that write the uniform register which bits 16..23 name. Bits 8..11 of an opcode are
#: the kinds of its operands.
_UNIFORM: Final = frozenset(
    kind << 8 | code
    for kind in (2, 7, 8, 9, 10, 12)
    for code in (
        0x82, 0x86, 0x87, 0x8F, 0x90, 0x91, 0x92, 0x96, 0x97, 0x99, 0xA4, 0xA5, 0xAC, 0xB9, 0xBD,
        0xBF, 0xC3, 0xCA,
    )
)  # fmt: skip
#: Instructions that write one register: moves, sums, shifts, logic, comparisons, special registers.
#: Any other instruction is taken to write at least two.
_SHORT: Final = frozenset(
    kind << 8 | code
    for kind in (2, 4, 8, 9, 10, 12)
    for code in (0x02, 0x10, 0x11, 0x12, 0x16, 0x17, 0x19, 0x24, 0x07, 0x0C)
) | {0x919, 0x9A7}
#: Loads of up to 128 bits, which are four registers.
_LONG: Final = frozenset((0x981, 0x984, 0x980, 0x983, 0x23B, 0x83B, 0xB82))
# low 8 bits of the opcode of HGMMA in any form; it writes up to 128 registers
_MATRIX: Final = 0xF0
# block barriers, stores and the cluster barrier: instructions that a mere wait loop does not have
_WORK: Final = frozenset((0xB1D, 0x31D, 0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0xDC7))
# instructions that write two uniform registers
_WIDE: Final = (0x2A5, 0x8A5)
# loads from constant memory (ULDC, LDCU), which write two uniform registers if they have 64 bits
_LOADS: Final = (0xAB9, 0x7AC)


class _Bits:
    """A descriptor of a field of an instruction: `count` bits from bit `first` on."""

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
    # predicate that decides whether the instruction runs; `ALWAYS` without a predicate
    guard: ClassVar[_Bits] = _Bits(12, 4)
    # convergence register of a BSSY or BSYNC
    convergence: ClassVar[_Bits] = _Bits(16, 4)
    # register, or uniform register, that receives the result
    target: ClassVar[_Bits] = _Bits(16, 8)
    # operands: uniform registers in TMA instructions, registers in SYNCS and others
    second: ClassVar[_Bits] = _Bits(24, 8)
    first: ClassVar[_Bits] = _Bits(32, 8)
    # constant operand, in place of `first`; of a BSSY, bytes to the place where its threads meet
    constant: ClassVar[_Bits] = _Bits(32, 32)
    # operation of a reduction: index in `_REDUCTIONS`
    operation: ClassVar[_Bits] = _Bits(87, 3)

    @property
    def third(self) -> int:
        """Number of the uniform register in bits 64..69; in bits 64..71 after sm_90."""
        return self.high & (0x3F if self.major == 9 else 0xFF)

    @property
    def immediate(self) -> int:
        """Bytes that a SYNCS adds to its address: bits 40..63, signed."""
        return signed(self.low >> 40, 24)

    @property
    def coding(self) -> Coding | None:
        """Coding of a TMA instruction; None for other instructions."""
        if self.opcode == _UBLKCP:
            return _BULK.get(self.high >> 9 & 3)
        return _BULK_REDUCE if self.opcode == _UBLKRED else _CODINGS.get(self.opcode)

    @property
    def has_map(self) -> bool:
        """Whether the instruction copies by a tensor map."""
        return self.opcode in _CODINGS

    @property
    def rank(self) -> int:
        """Rank of a tensor copy: bits 79..81, plus 1."""
        return (self.high >> 15 & 7) + 1

    @property
    def mode(self) -> str:
        """Mode of a tensor copy, as in its name: "", ".IM2COL", ".GATHER4" ..."""
        # the codes of a store differ: 2 is .SCATTER4
        code = self.high >> 18 & 7
        if self.opcode in (0x5B5, 0x3B5) and code == 2:
            return ".SCATTER4"
        return _MODES[code] if code < len(_MODES) else f".MODE{code}"

    @property
    def coordinates(self) -> int:
        """Number of coordinates, each in a register; with four rows it is a column and 4 rows."""
        return 5 if self.mode in (".GATHER4", ".SCATTER4") else self.rank

    @property
    def is_multicast(self) -> bool:
        """Whether the copy writes into several blocks of the cluster."""
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
        """Form of an arrival: "" (one arrival, and bytes from a register), ".A1T0"..."""
        return _ARRIVALS.get(self.high >> 20 & 7, "")

    @property
    def name(self) -> str:
        """Name of the instruction in nvdisasm's listings; "" if no rule needs it."""
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
        # bits 73..75 are the size of a load; 5 is 64 bits
        is_wide = self.opcode in _WIDE or (self.opcode in _LOADS and self.high >> 9 & 7 == 5)
        return range(self.target, self.target + 1 + is_wide)

    @property
    def writes(self) -> range:
        """Numbers of the registers that the instruction may write, rather too many than too few."""
        is_other = self.coding is not None or self.is_wait or self.opcode in _NO_TARGET
        if is_other or self.target == ZERO_REGISTER or self.writes_uniform:
            return range(0)
        short, long = self.opcode in _SHORT, self.opcode in _LONG
        count = 128 if self.is_matrix else 4 if long else 1 if short else 2
        return range(self.target, self.target + count)

    @property
    def branch(self) -> int | None:
        """Distance of a branch in bytes, from the next instruction; None for other instructions."""
        if self.opcode not in _BRANCHES:
            return None
        # 56 bits in three pieces: bits 16..23, 34..63 and 64..81; the unit is 4 bytes
        return 4 * signed(self.target | self.low >> 34 << 8 | (self.high & 0x3FFFF) << 38, 56)

    @property
    def does_work(self) -> bool:
        """Whether the instruction does more than a loop that only waits: copy, arrive, store..."""
        is_other = self.is_arrival or self.is_matrix or self.opcode in _WORK
        return is_other or self.coding is not None

    @property
    def set_scoreboards(self) -> tuple[int, int]:
        """Scoreboards held until the result is written, and until operands are read; 7 is none."""
        return self.high >> 46 & 7, self.high >> 49 & 7

    @property
    def needed_scoreboards(self) -> tuple[int, ...]:
        """Scoreboards that the instruction waits for: a bit each, from bit 116 on."""
        return tuple(n for n in range(6) if self.high >> 52 + n & 1)

    @property
    def ends(self) -> bool:
        """Whether the next instruction cannot run after this one."""
        # an EXIT, branch or return without a predicate
        return self.guard == ALWAYS and self.opcode in (_EXIT, 0x947, *_NO_RETURN)
