"""Shared memory as lines of 128 bytes (32 banks): which 16-byte chunk holds what, and why there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import CHUNK_BYTES, CHUNKS, Layout
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.held import held_blocks
from tma_dlpack.draw.memory_panel import layout_panel
from tma_dlpack.draw.scene import Scene
from tma_dlpack.draw.shown_copy import request_of
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Figure):
    """A tile in shared memory, unswizzled and as its map swizzles it."""

    title: str
    layouts: tuple[Layout, ...]
    notes: tuple[str, ...]

    def brief(self) -> SharedMemory:
        """Give the last layout alone, and say that there is another."""
        if len(self.layouts) == 1:
            return self
        further = "before the swizzle: see draw.shared"
        return replace(self, layouts=self.layouts[-1:], notes=(*self.notes, further))

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel per layout, the notes below the last."""
        return tuple(layout_panel(layout, self.notes) for layout in self.layouts)

    def text(self) -> str:
        """Give one table per layout."""
        parts = [self.title]
        for layout in self.layouts:
            banks = "".join(f"{f'{4 * n}..{4 * n + 3}':<11}" for n in range(CHUNKS))
            parts += [layout.name, f"{'banks':<9}{banks}".rstrip()]
            for block in layout.blocks:
                parts += [
                    f"{line.address:#06x}   "
                    + "".join(f"{chunk.token:<11}" for chunk in line.chunks).rstrip()
                    for line in block.lines
                ]
                parts += [f"         {block.then}"] * bool(block.then)
        marks = "* out of bounds, filled   ~ partly out of bounds   . untouched"
        return "\n".join([*parts, *self.notes, marks])


@opaque
def shared(
    tensor_map: TensorMap | Tile,
    coords: Sequence[int] | None = None,
    *,
    im2col_offsets: Sequence[int] | None = None,
    smem_offset: int = 0,
) -> SharedMemory:
    """Show where each 16-byte chunk of a tile lies in shared memory.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A tile brings its own coordinates and offset.
    coords : sequence of int, optional
        Row-major, as in `load_tile`; None for the first tile.
    im2col_offsets : sequence of int, optional
        Row-major, of an im2col map.
    smem_offset : int
        Where the tile starts in shared memory, bytes; a multiple of 128.

    Returns
    -------
    SharedMemory
        With two layouts, before and after the swizzle; one where there is no swizzle.

    Raises
    ------
    TmaPreconditionError
        For what is neither map nor tile, and for coordinates and offsets that `load_tile` would
        refuse.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((8, 64), np.float16), (4, 64), swizzle="bytes128")
    >>> swizzled = shared(tm).layouts[1].blocks[0]
    >>> [chunk.label for chunk in swizzled.lines[1].chunks[:2]]
    [('r1', 'c8..15'), ('r1', 'c0..7')]
    """
    request = request_of(tensor_map, coords, im2col_offsets, smem_offset)
    plan = request.plan
    if plan.pitch_bytes % CHUNK_BYTES:
        raise TmaUnsupportedError(
            f"lines of {plan.pitch_bytes} bytes cannot be drawn as chunks of 16 bytes; no driver "
            "accepts such a map"
        )
    args = plan.arguments
    unswizzled = Layout("unswizzled", held_blocks(request, TmaSwizzle.none))
    layouts: tuple[Layout, ...] = (unswizzled,)
    if plan.swizzle.terms:
        before = replace(unswizzled, name="before the swizzle")
        after = Layout(f"swizzle {args.swizzle.name}", held_blocks(request, args.swizzle))
        layouts = (before, after)
    line = {"tiled": "line of the box"}.get(args.kind, "pixel of the column")
    at = f" at {request.smem_offset:#x}" if request.smem_offset else ""
    return SharedMemory(
        title=f"shared memory{at}: {plan.smem_bytes} bytes, {plan.tx_bytes} written",
        layouts=layouts,
        notes=(
            f"r: {'unit' if plan.unit_bytes else line}, counted row-major",
            "c: its elements, one tint per 16 bytes",
        ),
    )
