"""The 16-byte chunks of a tile in shared memory, as they are drawn: frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tma_dlpack import geometry
from tma_dlpack.tables.enums import TmaSwizzle

BANK_BYTES, BANKS = 4, 32
LINE_BYTES = BANK_BYTES * BANKS
CHUNK_BYTES = 16
CHUNKS = LINE_BYTES // CHUNK_BYTES

State = Literal["data", "filled", "clipped", "padding"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """16 bytes of shared memory.

    Attributes
    ----------
    address : int
        Where they lie in shared memory, bytes.
    state : {"data", "filled", "clipped", "padding"}
        In bounds, out of bounds, both, or not written by the copy.
    row : int
        Line of the tile; -1 of padding.
    first, last : int
        Elements of that line, inclusive.
    element : tuple of int
        Row-major position of the first element in the tensor; empty for padding.
    global_address : int
        Of the first element; meaningful where in bounds.
    swapped : bool
        Whether the swizzle also exchanges its two halves of 8 bytes.
    linear, placed : int
        Its addresses before and after the swizzle of the map.
    swizzle : TmaSwizzle
        Of the map.
    fields : tuple of str
        The fields of the descriptor that decide what lies here, and where.
    data_bytes : int
        How many of the 16 hold values; packed types leave a gap after them.
    """

    address: int
    state: State
    row: int = -1
    first: int = 0
    last: int = 0
    element: tuple[int, ...] = ()
    global_address: int = 0
    swapped: bool = False
    linear: int = 0
    placed: int = 0
    swizzle: TmaSwizzle = TmaSwizzle.none
    fields: tuple[str, ...] = ()
    data_bytes: int = CHUNK_BYTES

    @property
    def key(self) -> str:
        """The name of what lies here, in every picture of the same copy; empty of padding."""
        return f"c{self.row}.{self.first}" if self.row >= 0 else ""

    @property
    def number(self) -> int:
        """Which chunk of its row it is, from 0."""
        return self.first // (self.last - self.first + 1)

    @property
    def tint(self) -> str:
        """The style that tells the chunks of a row apart."""
        return f"tint{self.number % CHUNKS}"

    @property
    def links(self) -> tuple[str, ...]:
        """The keys of its row (of an im2col column), its banks and the fields behind it."""
        bank = self.placed % LINE_BYTES // CHUNK_BYTES
        return (f"row{self.row}", f"bank{bank}", *self.fields) if self.row >= 0 else ()

    @property
    def banks(self) -> str:
        """The four banks it lies in."""
        bank = self.address % LINE_BYTES // BANK_BYTES
        return f"{bank}..{bank + 3}"

    @property
    def moved(self) -> str:
        """Say how the swizzle found its place, bit by bit; empty without one."""
        terms = geometry.SWIZZLES[self.swizzle].terms
        said = [
            f"addr[{_bits(mask, left)}] ^= addr[{_bits(mask, right)}] "
            f"(= {self.linear >> right & mask})"
            for right, mask, left in terms
        ]
        return f"linear {self.linear:#06x} to {self.placed:#06x}: {', '.join(said)}" if said else ""

    @property
    def label(self) -> tuple[str, ...]:
        """Row and columns, as drawn."""
        if self.state == "padding":
            return ("untouched",)
        columns = f"c{self.first}" + (f"..{self.last}" if self.last > self.first else "")
        return (f"r{self.row}", columns + " ⇄" * self.swapped)

    @property
    def about(self) -> str:
        """Everything, as shown on hovering."""
        where = f"shared {self.address:#06x}, banks {self.banks}"
        if self.state == "padding":
            return f"{where}: untouched"
        element = f"element {self.element} and {self.last - self.first} more"
        origin = f"global {self.global_address:#x}"
        if self.state == "filled":
            origin = "out of bounds, filled"
        elif self.state == "clipped":
            origin += ", partly out of bounds"
        gap = CHUNK_BYTES - self.data_bytes
        lines = [
            f"{element}, halves of 8 bytes exchanged" if self.swapped else element,
            origin,
            f"{where}; {gap} bytes of gap after {self.data_bytes} of values" if gap else where,
            self.moved,
            f"decided by {', '.join(self.fields)}" if self.fields else "",
        ]
        return "\n".join(filter(None, lines))

    @property
    def token(self) -> str:
        """The same in at most 10 characters, for terminals."""
        if self.state == "padding":
            return "."
        mark = {"filled": "*", "clipped": "~"}.get(self.state, "")
        return f"r{self.row}c{self.first}{mark}"


def _bits(mask: int, low: int) -> str:
    """Name address bits: ``6:4``.

    >>> _bits(7, 4), _bits(1, 7)
    ('6:4', '7')
    """
    high = low + mask.bit_length() - 1
    return f"{high}:{low}" if high > low else f"{low}"


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """128 bytes of shared memory, or what is left of them at the end.

    `slices` are the outer positions (within the box) of the rows that lie here, of a box of three
    and more dimensions.
    """

    address: int
    chunks: tuple[Chunk, ...]
    slices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that are drawn, and a sentence on those after them that are not.

    `torn` says that what follows is left out and not merely like what is drawn.
    """

    lines: tuple[MemoryLine, ...]
    then: str = ""
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """One way the tile can lie in shared memory."""

    name: str
    blocks: tuple[Block, ...]
