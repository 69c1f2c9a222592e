"""The picture of an operand that a matrix descriptor describes: atoms, K steps and offsets."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import Any

from tma_dlpack.consumer import MatrixDescriptor, matrix_descriptor
from tma_dlpack.consumer.operand import K_STEP_BYTES, SPAN_BYTES, UNITS
from tma_dlpack.draw.figure import Figure, fragment, require
from tma_dlpack.draw.grid import (
    MARGIN,
    NARROW,
    Cell,
    Grid,
    Scene,
    label,
    lay_out,
    text_width,
    words,
)
from tma_dlpack.public import opaque
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap

MAX_ACROSS, MAX_DOWN = 6, 8  # maximum number of drawn atoms in a row and in a column
# px: width of 16 bytes, minimum width of an atom, height of an atom, gap between two atoms.
UNIT_WIDTH, LEAST_WIDTH, ATOM_HEIGHT, GAP = 30, 72, 44, 34
TALL = ATOM_HEIGHT / (ATOM_HEIGHT + GAP)  # the height of an atom as a fraction of its grid row


@dataclass(frozen=True, slots=True)
class Atom:
    """A swizzle atom: 8 (or 4) rows of one swizzle span each, contiguous in shared memory.

    Attributes
    ----------
    down, across : int
        The atom is number `across` from the left in row number `down` from the top. Both numbers
        start at 0.
    address : int
        Shared-memory address of the atom's first byte.
    steps : tuple of int
        Indices of the K steps that read the atom. In a K-major operand, the leftmost K step is
        first.
    """

    down: int
    across: int
    address: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class MatrixAtoms(Figure):
    """The atoms of an operand, at the addresses that the tensor core computes.

    Attributes
    ----------
    descriptor : MatrixDescriptor
    atoms : tuple of Atom
        All atoms, one row of atoms after the other.
    down, across : int
        Number of rows of atoms, and number of atoms in each of these rows.
    atom_rows, span_bytes : int
        Number of rows inside an atom, and number of bytes in each of these rows.
    """

    title: str
    descriptor: MatrixDescriptor
    atoms: tuple[Atom, ...]
    down: int
    across: int
    atom_rows: int
    span_bytes: int

    @property
    def offsets(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Two offsets as (name, bytes): to the atom below, and to the atom on the right.

        A name is "" if no field of the descriptor has this offset.
        """
        # PTX ISA, matrix descriptor: swizzle and major decide which field has which offset.
        d = self.descriptor
        leading = ("leading byte offset", d.leading_byte_offset)
        stride = ("stride byte offset", d.stride_byte_offset)
        if d.swizzle is not TmaSwizzle.none:
            return stride, ("", 0) if d.major == "K" else leading
        # Without a swizzle, the offset to the atom below is in the stride field of a K-major
        # operand, but in the leading field of an MN-major operand.
        return (stride, leading) if d.major == "K" else (leading, stride)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the axes, on the offsets, and on the number of atoms that are not drawn."""
        d = self.descriptor
        left = {"rows": self.down - MAX_DOWN, "spans": self.across - MAX_ACROSS}
        notes = [f"⋮ {n} more {what} of atoms" for what, n in left.items() if n > 0]
        rows, inner = ("M or N", "K") if d.major == "K" else ("K", "M or N")
        notes.append(f"down: {rows}, {self.atom_rows} rows per atom; across: {inner}")
        for (name, offset), where in zip(self.offsets, ("below", "to the right"), strict=True):
            if name:
                notes.append(f"{name}: {offset} bytes to the atom {where}")
        if d.major == "K" and d.swizzle is not TmaSwizzle.none:
            notes.append("leading byte offset: not used; each K step has its own start address")
        return tuple(notes)

    @property
    def sentence(self) -> str:
        """The caption: what an instruction reads, and where the next instruction begins to read."""
        starts = self.descriptor.k_starts
        said = "One instruction reads [all of step 0](is-step0), framed"
        if len(starts) > 1:
            said += f"; the next reads [step 1](is-step1), from shared address {starts[1]:#06x} on"
        return f"{said}."

    def text(self) -> str:
        """Return a table of the atoms' addresses, and the start addresses of the first K steps."""
        across = range(min(self.across, MAX_ACROSS))
        head = "".join(f"{f'span {n}':<12}" for n in across)
        lines = [self.title, f"{'rows':<12}{head}".rstrip()]
        for n in range(min(self.down, MAX_DOWN)):
            row = [f"{self.atoms[n * self.across + m].address:#06x}" for m in across]
            cells = "".join(f"{cell:<12}" for cell in row)
            lines.append(f"{self._rows(n):<12}{cells}".rstrip())
        starts = [f"{start:#06x}" for start in self.descriptor.k_starts[:8]]
        more = f" and {self.descriptor.k_steps - 8} more" if self.descriptor.k_steps > 8 else ""
        steps = f"K steps start at {', '.join(starts)}{more}"
        return "\n".join([*lines, *self.notes, steps])

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel with the atoms and the offsets."""
        width = max(LEAST_WIDTH, self.span_bytes // UNITS * UNIT_WIDTH)
        return (self._scene(width, GAP),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone: narrower atoms, and only the text that fits."""
        across = min(self.across, MAX_ACROSS)
        names = [self._rows(down) for down in range(min(self.down, MAX_DOWN))]
        names.append(self._below())
        # The width in px that the longest row name leaves for the atoms.
        room = NARROW - 2 * MARGIN - 6 - max(map(text_width, names))
        gap = min(GAP, room / across / 4)
        return (self._scene(room / across - gap, gap, is_narrow=True),)

    def _scene(self, width: float, gap: float, *, is_narrow: bool = False) -> Scene:
        wide = width / (width + gap)
        across, down = min(self.across, MAX_ACROSS), min(self.down, MAX_DOWN)
        cells = []
        for atom in self.atoms:
            if atom.across < across and atom.down < down:
                cells += self._atom(atom, wide)
                if atom.across == 0:
                    cells.append(label(0, atom.down, self._rows(atom.down), rows=TALL))
        if below := self._below():
            cells.append(label(0, TALL, below, "strong", 1 - TALL))
        right, right_bytes = self.offsets[1]
        if right and across > 1:
            name = f"→ {_short(right)} {right_bytes}"
            cells.append(Cell(0.5 + wide / 2, -0.4, "strong", name, columns=0, rows=0.4))
        grid = Grid(tuple(cells), (width + gap, ATOM_HEIGHT + GAP))
        heading = "atoms in shared memory"
        return lay_out(self.title, [grid], heading, (), self.notes, is_narrow=is_narrow)

    def _atom(self, atom: Atom, wide: float) -> list[Cell]:
        """Draw an atom. Its K steps are side by side if K runs along the rows of the atom."""
        d, about = self.descriptor, f"shared {atom.address:#06x}"
        # `share`: the fraction of a row that one K step reads; 1 if a K step reads whole rows.
        share = K_STEP_BYTES / self.span_bytes
        if d.major == "MN" or d.swizzle is TmaSwizzle.none:
            share = 1
        cells, framed = [], []
        for step in atom.steps:
            at = d.k_starts[step] % self.span_bytes / self.span_bytes * (share < 1)
            style, name, title = f"tint{step % 8}", f"step {step}", f"{about}, K step {step}"
            place = atom.across + wide * at, atom.down
            step_cell = Cell(*place, style, name, title, wide * share, TALL, key=f"is-step{step}")
            cells.append(step_cell)
            if step == 0:
                framed = [replace(step_cell, style="focus", text="", title="", key="")]
        cells.append(Cell(atom.across, atom.down, "edge", "", about, wide, TALL))
        # The frame of step 0 comes last, so that no other cell of the atom covers it.
        cells += framed
        name, below = f"{atom.address:#06x}", atom.down + TALL
        return [*cells, words(atom.across, below, name, rows=1 - TALL)]

    def _below(self) -> str:
        """Return the label for the offset to the atom below, or "" if there is no such offset."""
        name, offset_bytes = self.offsets[0]
        return f"↓ {_short(name)} {offset_bytes}" if name and self.down > 1 else ""

    def _rows(self, down: int) -> str:
        first = down * self.atom_rows
        return f"{first}..{first + self.atom_rows - 1}"


@opaque
def matrix(
    descriptor_or_map: MatrixDescriptor | TensorMap,
    *,
    instruction: str = "wgmma",
    major: str = "K",
    smem_address: int = 0,
) -> MatrixAtoms:
    """Show the atoms of an operand in shared memory, and the offsets in its matrix descriptor.

    Parameters
    ----------
    descriptor_or_map : MatrixDescriptor or TensorMap
        A TensorMap is passed to `matrix_descriptor` together with the other arguments. With a
        MatrixDescriptor, the other arguments are ignored.
    instruction, major, smem_address
        As in `matrix_descriptor`.

    Returns
    -------
    MatrixAtoms

    Raises
    ------
    TmaPreconditionError
        If `descriptor_or_map` has another type, or `matrix_descriptor` refuses the map.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> print(matrix(tma.make_tma_descriptor(x, (16, 64), swizzle="bytes128")))
    wgmma, K-major: 16 of M or N, 64 of K in atoms of 8 rows of 128 bytes
    rows        span 0
    0..7        0x0000
    8..15       0x0400
    down: M or N, 8 rows per atom; across: K
    stride byte offset: 1024 bytes to the atom below
    leading byte offset: not used; each K step has its own start address
    K steps start at 0x0000, 0x0020, 0x0040, 0x0060
    """
    fix = "pass matrix_descriptor(tensor_map), or a map"
    require("descriptor_or_map", descriptor_or_map, (MatrixDescriptor, TensorMap), fix)
    if isinstance(descriptor_or_map, MatrixDescriptor):
        return _atoms(descriptor_or_map)
    options: dict[str, Any] = {"instruction": instruction, "major": major}
    return _atoms(matrix_descriptor(descriptor_or_map, **options, smem_address=smem_address))


def matrix_html(descriptor: MatrixDescriptor) -> str:
    """Return a matrix descriptor as HTML: its fields as text, and the picture of its atoms.

    Parameters
    ----------
    descriptor : MatrixDescriptor

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (64, 64), swizzle="bytes128")
    >>> "stride byte offset" in matrix_html(tma.matrix_descriptor(tm))
    True
    """
    fix = "pass matrix_descriptor(tensor_map)"
    require("descriptor", descriptor, (MatrixDescriptor,), fix)
    return fragment([f"<pre>{html.escape(str(descriptor))}</pre>", matrix(descriptor)])


def _atoms(d: MatrixDescriptor) -> MatrixAtoms:
    span = SPAN_BYTES[d.swizzle]
    rows = 4 if d.swizzle is TmaSwizzle.bytes128_atom_32B else 8
    # The last atom is at the bottom right, so its indices give the number of rows and columns.
    atoms = tuple(_k_major(d, span) if d.major == "K" else _mn_major(d, span, rows))
    across = f"{d.mn_elements} of M or N, {d.k_steps * d.k_elements} of K"
    title = f"{d.instruction}, {d.major}-major: {across} in atoms of {rows} rows of {span} bytes"
    return MatrixAtoms(title, d, atoms, atoms[-1].down + 1, atoms[-1].across + 1, rows, span)


def _k_major(d: MatrixDescriptor, span: int) -> list[Atom]:
    """Return the atoms of a K-major operand: M or N runs down, and K runs across."""
    columns: dict[int, list[int]] = {}
    for step, start in enumerate(d.k_starts):
        if d.swizzle is TmaSwizzle.none:
            # Without a swizzle, a row of an atom has 16 bytes. Therefore a K step of 32 bytes reads
            # two columns of atoms. The second starts `leading_byte_offset` bytes after the first.
            columns[start], columns[start + d.leading_byte_offset] = [step], [step]
        else:
            columns.setdefault(start - start % span, []).append(step)
    return [
        Atom(n, m, address + n * d.stride_byte_offset, tuple(steps))
        for n in range(d.mn_elements // 8)
        for m, (address, steps) in enumerate(columns.items())
    ]


def _mn_major(d: MatrixDescriptor, span: int, rows: int) -> list[Atom]:
    """Return the atoms of an MN-major operand: K runs down, and M or N runs across."""
    down, across = d.stride_byte_offset, d.leading_byte_offset
    if d.swizzle is TmaSwizzle.none:
        # PTX ISA: without a swizzle, the leading field has the offset to the atom below, and the
        # stride field has the offset to the atom on the right.
        down, across = across, down
    per_span = span // d.element_bytes
    spans, per_step = -(-d.mn_elements // per_span), d.k_elements // rows
    return [
        Atom(step * per_step + n, m, start + n * down + m * across, (step,))
        for step, start in enumerate(d.k_starts)
        for n in range(per_step)
        for m in range(spans)
    ]


def _short(name: str) -> str:
    """Return the usual abbreviation of an offset's name: "LBO" or "SBO"."""
    return f"{name[0].upper()}BO"
