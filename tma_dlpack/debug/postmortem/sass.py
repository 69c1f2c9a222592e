"""Machine code, as far as TMA and mbarriers need it: what an instruction is, and its operands.

A coding is a row: the opcode (bits 0..11) and the meaning of uniform registers that bits 32..39
and bits 24..31 name. The codings of sm_90a, 100a, 103a, 110a and 120a are the same, except SYNCS's
uniform register (6 bits on sm_90, 8 later).

Source: what nvdisasm 13.5 prints for ptxas 13.0's code (tests/postmortem/codings.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

INSTRUCTION_BYTES = 16
ALWAYS = 7  # the guard PT
ZERO_REGISTER = 255  # RZ
KNOWN_TARGETS = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


def signed(value: int, bits: int) -> int:
    """Return a number of `bits` bits, read as two's complement."""
    return value - (value >> bits - 1 << bits)


class Coding(NamedTuple):
    """An instruction of TMA, and what its uniform registers hold: attributes of `causes.Use`.

    `first` begins at the register that bits 32..39 name, `second` at that of bits 24..31; the
    address of a map or of global memory takes two registers, `coordinates` the rest.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


_MAP, _GLOBAL, _SHARED = ("map_address",), ("global_address",), ("shared_address",)
_LOAD, _STORE = (*_SHARED, "barrier", "coordinates"), (*_SHARED, "coordinates")
STORES = ("UTMASTG", "UTMAREDG", "UBLKCP.G", "UBLKRED.G")  # from shared memory: its source
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
    3: Coding(
        "UBLKCP.S.S", (*_SHARED, "barrier"), ()
    ),  # and its source, which is shared memory too
}
_BULK_REDUCE: Final = Coding("UBLKRED.G.S", _GLOBAL, _SHARED)
_UBLKCP, _UBLKRED = 0x3BA, 0x3BB
_MODES: Final = ("", ".IM2COL", ".W128", ".W", ".GATHER4")  # bits 82..84
_REDUCTIONS: Final = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")  # bits 87..89
_PHASECHK, _ARRIVE, _EXCH = 0x5A7, 0x9A7, 0x5B2
#: What an arrival does, by bits 84..86: ``A`` arrivals, ``T`` bytes; 0, 1, or R, the register.
_ARRIVALS: Final = {0: "", 1: ".A1T0", 2: ".A0TX", 3: ".A0TR", 5: ".ART0"}
_EXIT, BSSY, BSYNC = 0x94D, 0x945, 0x941
_BRANCHES: Final = (0x947, 0x547)
_NO_RETURN: Final = (0x950, 0x949)  # RET, BRX
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
#: Instructions without a register as result, though bits 16..23 are some number.
_NO_TARGET: Final = frozenset(
    (
        *_BRANCHES, _EXIT, BSSY, BSYNC, 0x95D, 0x918, 0x948, 0xB1D, 0x31D, 0x992, 0x98F,
        0x20A, 0x20B, 0x80B, 0xC0B, 0x20C, 0x80C, 0xC0C, 0x28C, 0x88C, 0x81C, 0x81E,  # predicates
        0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0x3C6, 0x91A, 0x946, 0x9C5, 0x9C7,  # stores
    )
)  # fmt: skip
#: Instructions that write the uniform register of bits 16..23.
_UNIFORM: Final = frozenset(
    kind << 8 | code
    for kind in (2, 7, 8, 9, 10, 12)
    for code in (
        0x82, 0x86, 0x87, 0x8F, 0x90, 0x91, 0x92, 0x96, 0x97, 0x99, 0xA4, 0xA5, 0xAC, 0xB9, 0xBD,
        0xBF, 0xC3, 0xCA,
    )
)  # fmt: skip
#: Instructions that write one register: moves, sums, shifts, logic, comparisons, special registers.
_SHORT: Final = frozenset(
    kind << 8 | code
    for kind in (2, 4, 8, 9, 10, 12)
    for code in (0x02, 0x10, 0x11, 0x12, 0x16, 0x17, 0x19, 0x24, 0x07, 0x0C)
) | {0x919, 0x9A7}
#: Loads of up to 128 bits.
_LONG: Final = frozenset((0x981, 0x984, 0x980, 0x983, 0x23B, 0x83B, 0xB82))
_MATRIX: Final = 0xF0  # HGMMA, in several forms: up to 128 registers
_WORK: Final = frozenset((0xB1D, 0x31D, 0x385, 0x387, 0x388, 0x844, 0x985, 0x986, 0xDC7))
_WIDE: Final = (0x2A5, 0x8A5)  # to two uniform registers; so do these loads, if of 64 bits
_LOADS: Final = (0xAB9, 0x7AC)


class _Bits:
    """Some of the 128 bits of an instruction."""

    def __init__(self, first: int, count: int) -> None:
        self.first: int = first
        self.count: int = count

    def __get__(self, of: Instruction, kind: type) -> int:
        word = of.high if self.first >= 64 else of.low
        return word >> self.first % 64 & (1 << self.count) - 1


@dataclass(frozen=True, slots=True)
class Instruction:
    """128 bits, taken apart."""

    low: int
    high: int
    major: int

    opcode: ClassVar[_Bits] = _Bits(0, 12)
    guard: ClassVar[_Bits] = _Bits(
        12, 4
    )  # the predicate that decides if it runs, `ALWAYS` for none
    convergence: ClassVar[_Bits] = _Bits(16, 4)  # the convergence barrier of a BSSY or BSYNC
    target: ClassVar[_Bits] = _Bits(16, 8)  # a register, or a uniform one, where it writes one
    second: ClassVar[_Bits] = _Bits(24, 8)  # a uniform register, of SYNCS and others a register
    first: ClassVar[_Bits] = _Bits(32, 8)  # the same
    constant: ClassVar[_Bits] = _Bits(
        32, 32
    )  # in place of `first`; of a BSSY, how far on its threads meet again
    operation: ClassVar[_Bits] = _Bits(87, 3)  # of a reduction

    @property
    def third(self) -> int:
        """The uniform register of bits 64..69, after sm_90 of bits 64..71."""
        return self.high & (0x3F if self.major == 9 else 0xFF)

    @property
    def immediate(self) -> int:
        """The offset that a SYNCS adds to its address."""
        return signed(self.low >> 40, 24)

    @property
    def coding(self) -> Coding | None:
        """The row of a TMA instruction; None of others."""
        if self.opcode == _UBLKCP:
            return _BULK.get(self.high >> 9 & 3)
        return _BULK_REDUCE if self.opcode == _UBLKRED else _CODINGS.get(self.opcode)

    @property
    def has_map(self) -> bool:
        """Whether it copies by a tensor map."""
        return self.opcode in _CODINGS

    @property
    def rank(self) -> int:
        """How many coordinates a tensor copy has."""
        return (self.high >> 15 & 7) + 1

    @property
    def mode(self) -> str:
        """The suffix of its name: "", ".IM2COL", ".GATHER4" ..."""
        code = self.high >> 18 & 7
        if self.opcode in (0x5B5, 0x3B5) and code == 2:
            return ".SCATTER4"
        return _MODES[code] if code < len(_MODES) else f".MODE{code}"

    @property
    def coordinates(self) -> int:
        """How many registers of coordinates there are."""
        return 5 if self.mode in (".GATHER4", ".SCATTER4") else self.rank

    @property
    def is_multicast(self) -> bool:
        """Whether it writes into several blocks of the cluster."""
        return self.opcode in (0x3B4, _UBLKCP) and bool(self.high >> 11 & 1)

    @property
    def reduction(self) -> str:
        """The operation of a reduction, such as "ADD"."""
        return _REDUCTIONS[self.operation] if self.opcode in (0x5B6, 0x3B6) else ""

    @property
    def is_wait(self) -> bool:
        """Whether it asks a barrier for a phase."""
        return self.opcode == _PHASECHK

    @property
    def is_arrival(self) -> bool:
        """Whether it arrives at a barrier, or changes its count of bytes."""
        return self.opcode == _ARRIVE

    @property
    def is_init(self) -> bool:
        """Whether it initialises a barrier."""
        return self.opcode == _EXCH

    @property
    def is_matrix(self) -> bool:
        """Whether it is an HGMMA, in any of its forms."""
        return self.opcode & 0xFF == _MATRIX

    @property
    def arrival(self) -> str:
        """The kind of an arrival: "" (one arrival, and bytes from a register), ".A1T0"..."""
        return _ARRIVALS.get(self.high >> 20 & 7, "")

    @property
    def name(self) -> str:
        """Return the name as nvdisasm has it, "" of one that is not needed here."""
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
        """The uniform registers that it writes."""
        if self.opcode not in _UNIFORM:
            return range(0)
        is_wide = self.opcode in _WIDE or (self.opcode in _LOADS and self.high >> 9 & 7 == 5)
        return range(self.target, self.target + 1 + is_wide)

    @property
    def writes(self) -> range:
        """The registers that it may write."""
        is_other = self.coding is not None or self.is_wait or self.opcode in _NO_TARGET
        if is_other or self.target == ZERO_REGISTER or self.writes_uniform:
            return range(0)
        short, long = self.opcode in _SHORT, self.opcode in _LONG
        count = 128 if self.is_matrix else 4 if long else 1 if short else 2
        return range(self.target, self.target + count)

    @property
    def branch(self) -> int | None:
        """Where a branch goes, in bytes from the next instruction; None of others."""
        if self.opcode not in _BRANCHES:
            return None
        return 4 * signed(self.target | self.low >> 34 << 8 | (self.high & 0x3FFFF) << 38, 56)

    @property
    def does_work(self) -> bool:
        """Whether it does what a loop that only waits does not: it copies, arrives, stores..."""
        is_other = self.is_arrival or self.is_matrix or self.opcode in _WORK
        return is_other or self.coding is not None

    @property
    def set_scoreboards(self) -> tuple[int, int]:
        """The scoreboards that it sets until it has written and read its registers; 7: none."""
        return self.high >> 46 & 7, self.high >> 49 & 7

    @property
    def needed_scoreboards(self) -> tuple[int, ...]:
        """The scoreboards that have to be clear before it runs."""
        return tuple(n for n in range(6) if self.high >> 52 + n & 1)

    @property
    def ends(self) -> bool:
        """Whether nothing runs after it."""
        return self.guard == ALWAYS and self.opcode in (_EXIT, 0x947, *_NO_RETURN)
