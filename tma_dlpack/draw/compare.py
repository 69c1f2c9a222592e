"""Two maps beside each other: the fields that differ, and the tile that each of them loads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tma_dlpack.draw.bits import diff
from tma_dlpack.draw.chunks import Layout
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.map_bytes import FieldValue, MapBytes
from tma_dlpack.draw.memory import SharedMemory, shared
from tma_dlpack.draw.memory_panel import layout_panel
from tma_dlpack.draw.scene import Box, Item, Scene, Text, text_width
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Figure):
    """Map A against map B.

    Attributes
    ----------
    difference : MapBytes
        All fields of both.
    memories : tuple of SharedMemory
        The first tile of each.
    """

    title: str
    difference: MapBytes
    memories: tuple[SharedMemory, SharedMemory]

    @property
    def changed(self) -> tuple[FieldValue, ...]:
        """The fields that differ."""
        return tuple(v for v in self.difference.values if v.differs)

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """How the tile lies in shared memory, of A and of B."""
        a, b = (memory.layouts[-1] for memory in self.memories)
        return replace(a, name=f"A: {a.name}"), replace(b, name=f"B: {b.name}")

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to the table of changed fields and both tiles."""
        tiles = zip(self.layouts, self.memories, strict=True)
        return (_table(self.changed), *(layout_panel(one, of.notes) for one, of in tiles))

    def text(self) -> str:
        """Give the changed fields; the tiles where they differ."""
        rows = [f"{v.field:<26} A {v.shown[0]:<18} B {v.shown[1]}".rstrip() for v in self.changed]
        return "\n".join([self.title, *(rows or ["no field differs"])])


@opaque
def compare(a: TensorMap, b: TensorMap) -> Comparison:
    """Show map A against map B: which fields changed, and what that does to the first tile.

    Parameters
    ----------
    a, b : TensorMap

    Returns
    -------
    Comparison
        `changed` has the fields that differ, `memories` the first tile of each in shared memory.

    Raises
    ------
    TmaPreconditionError
        If one of them is not a TensorMap, or `load_tile` would refuse its first tile.
    TmaUnsupportedError
        If one of them has no bytes here.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> a = tma.make_tma_descriptor(x, (8, 64))
    >>> print(compare(a, tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")))
    A against B: 2 fields differ
    swizzle                    A none               B bytes128
    swizzle_repeat_bytes       A 16                 B 1024
    """
    difference = diff(a, b)
    count = sum(v.differs for v in difference.values)
    title = f"A against B: {count} field{'s differ' if count != 1 else ' differs'}"
    return Comparison(title, difference, (shared(a), shared(b)))


def _table(changed: tuple[FieldValue, ...]) -> Scene:
    columns = [10.0, 190.0]
    columns.append(190 + max([60.0, *(text_width(v.shown[0]) for v in changed)]) + 20)
    items: list[Item] = [
        Text(x, 20, head, "strong") for x, head in zip(columns, ("changed", "A", "B"), strict=True)
    ]
    for n, v in enumerate(changed):
        y = 30.0 + 20 * n
        items.append(Box(4, y, 10, 14, "changed", title=f"{v.field}: bits {v.bits}", key=v.field))
        cells = zip((20, *columns[1:]), (v.field, *v.shown), strict=True)
        items += [Text(x, y + 11, said) for x, said in cells]
    if not changed:
        items.append(Text(10, 42, "no field differs"))
    width = columns[2] + max([60.0, *(text_width(v.shown[1]) for v in changed)]) + 14
    return Scene(width, 46 + 20 * len(changed), "the fields that differ", tuple(items))
