"""Machine code, as far as TMA and mbarriers need it: what an instruction is, and its operands.

A coding is a row: the opcode (bits 0..11) and what stands in the uniform registers that bits 32..39
and bits 24..31 name. The codings of sm_90a, 100a, 103a, 110a and 120a are the same, but for SYNCS's
uniform register (6 bits on sm_90, 8 later).

Source: what nvdisasm 13.5 prints for ptxas 13.0's code (tests/postmortem/codings.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

INSTRUCTION_BYTES = 16
ALWAYS = 7  # the guard PT
KNOWN_TARGETS = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


class Coding(NamedTuple):
    """An instruction of TMA: names of what its uniform registers hold.

    `first` begins at the register that bits 32..39 name, `second` at that of bits 24..31; an
    address in global memory takes two registers, `coordinates` the rest.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


_LOAD = ("destination", "barrier", "coordinates")
_STORE = ("source", "coordinates")
_CODINGS: Final = {
    0x5B4: Coding("UTMALDG", _LOAD, ("map",)),
    0x3B4: Coding("UTMALDG", _LOAD, ("map",)),
    0x5B5: Coding("UTMASTG", _STORE, ("map",)),
    0x3B5: Coding("UTMASTG", _STORE, ("map",)),
    0x5B6: Coding("UTMAREDG", _STORE, ("map",)),
    0x3B6: Coding("UTMAREDG", _STORE, ("map",)),
    0x5B8: Coding("UTMAPF", ("coordinates",), ("map",)),
    0x3B8: Coding("UTMAPF", ("coordinates",), ("map",)),
}
#: Bulk copies without a map, by bits 73..74: global to shared, shared to global, shared to shared.
_BULK: Final = {
    1: Coding("UBLKCP.S.G", ("destination", "barrier"), ("global",)),
    2: Coding("UBLKCP.G.S", ("global",), ("source",)),
    3: Coding("UBLKCP.S.S", ("destination", "barrier"), ("source",)),
}
_BULK_REDUCE: Final = Coding("UBLKRED.G.S", ("global",), ("source",))
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
_WIDE: Final = frozenset((0x2A5, 0x8A5, 0xAB9, 0x7AC))


@dataclass(frozen=True, slots=True)
class Instruction:
    """128 bits, taken apart."""

    low: int
    high: int
    major: int

    @property
    def opcode(self) -> int:
        """Bits 0..11."""
        return self.low & 0xFFF

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
        """What is appended to its name: "", ".IM2COL", ".GATHER4" ..."""
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
        return _REDUCTIONS[self.high >> 23 & 7] if self.opcode in (0x5B6, 0x3B6) else ""

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
    def arrival(self) -> str:
        """What an arrival does: "" (one arrival, and bytes from a register), ".A1T0"..."""
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
        if self.opcode & 0xFF == _MATRIX:
            return "HGMMA"
        return "SYNCS.EXCH.64" if self.is_init else _OTHERS.get(self.opcode, "")

    # -- registers -------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The uniform register of bits 32..39."""
        return self.low >> 32 & 0xFF

    @property
    def second(self) -> int:
        """The uniform register, of SYNCS the register, of bits 24..31."""
        return self.low >> 24 & 0xFF

    @property
    def third(self) -> int:
        """The uniform register of bits 64..69, after sm_90 of bits 64..71."""
        return self.high & (0x3F if self.major == 9 else 0xFF)

    @property
    def immediate(self) -> int:
        """What a SYNCS adds to its address."""
        value = self.low >> 40
        return value - (1 << 24) if value >> 23 else value

    @property
    def writes_uniform(self) -> range:
        """The uniform registers that it writes."""
        if self.opcode not in _UNIFORM:
            return range(0)
        first = self.low >> 16 & 0xFF
        is_wide = self.opcode in (0x2A5, 0x8A5) or (
            self.opcode in _WIDE and (self.high >> 9 & 7) == 5
        )
        return range(first, first + 1 + is_wide)

    @property
    def may_write(self) -> int:
        """The register that it may write; 255 for none."""
        return 255 if self.opcode in _NO_TARGET else self.low >> 16 & 0xFF

    @property
    def registers_written(self) -> int:
        """How many registers it may write, from `may_write` on."""
        if self.opcode & 0xFF == _MATRIX:
            return 128
        if self.opcode in _LONG:
            return 4
        return 1 if self.opcode in _SHORT else 2

    @property
    def branch(self) -> int | None:
        """Where a branch goes, in bytes from the next instruction; None of others."""
        if self.opcode in _BRANCHES:
            words = self.low >> 16 & 0xFF | self.low >> 34 << 8 | (self.high & 0x3FFFF) << 38
            return (words - (1 << 56) if words >> 55 else words) * 4
        return None

    @property
    def rejoins(self) -> int | None:
        """Where the threads of a BSYNC with this BSSY's barrier go on; None of others."""
        return self.low >> 32 if self.opcode == BSSY else None

    @property
    def convergence(self) -> int:
        """The convergence barrier of a BSSY or BSYNC."""
        return self.low >> 16 & 0xF

    @property
    def does_work(self) -> bool:
        """Whether it does what a loop that only waits does not: it copies, arrives, stores..."""
        return (
            self.coding is not None
            or self.is_arrival
            or self.opcode in _WORK
            or self.opcode & 0xFF == _MATRIX
        )

    @property
    def guard(self) -> int:
        """The predicate that decides if it runs, `ALWAYS` for none."""
        return self.low >> 12 & 0xF

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
