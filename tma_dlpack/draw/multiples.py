"""Small multiples of maps: each picture has the box, to scale, in the plane of the tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.grid import MARGIN, NARROW, Cell, Grid, Scene, lay_out, text_width, words
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tensor_map.map import TensorMap

PITCH, LINE = 138, 14  # px from one picture to the next, and of a line of words
ROOM = 112, 56  # px for the plane of a tensor
LEAST = 3  # minimum px of a side
MOST_MAPS = 100
LEGEND = [
    (Cell(0, 0, "tensor"), "the two innermost dimensions"),
    (Cell(0, 0, "taken"), "the box, to scale"),
    (Cell(0, 0, "conflict", hatched=True), "of a map with a finding"),
]


@dataclass(frozen=True, slots=True, repr=False)
class Multiples(Figure):
    """Small pictures of maps, in rows.

    Attributes
    ----------
    maps : tuple of (number, TensorMap, bool)
        The number of the map, the map, and whether something is wrong with it.
    """

    title: str
    maps: tuple[tuple[int, TensorMap, bool], ...]

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel."""
        return (self._scene(8, is_narrow=False),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel of a phone's width."""
        return (self._scene((NARROW - 2 * MARGIN) // PITCH or 1, is_narrow=True),)

    def text(self) -> str:
        """Return a line for each map."""
        lines = [
            f"{'✗' if is_wrong else ' '} #{number} {', '.join(_words_of(tensor_map))}"
            for number, tensor_map, is_wrong in self.maps
        ]
        return "\n".join(line[:TEXT_COLUMNS] for line in (self.title, *lines))

    def _scene(self, across: int, *, is_narrow: bool) -> Scene:
        cells: list[Cell] = []
        height = ROOM[1] + 4 * LINE
        for n, (number, tensor_map, is_wrong) in enumerate(self.maps[:MOST_MAPS]):
            down, right = divmod(n, across)
            cells += _picture(number, tensor_map, right * PITCH, down * height, is_wrong)
        left = len(self.maps) - MOST_MAPS
        notes = [f"{counted(left, 'further map')} not drawn"] if left > 0 else []
        legend = LEGEND[: 2 + any(is_wrong for *_, is_wrong in self.maps)]
        grids = [Grid(tuple(cells))]
        return lay_out(self.title, grids, notes=notes, legend=legend, is_narrow=is_narrow)


def _picture(number: int, tensor_map: TensorMap, x: int, y: int, is_wrong: bool) -> list[Cell]:
    """Draw the plane of a tensor with the box in its corner, and their descriptions below."""
    (width, height), (across, down) = _planes(tensor_map)
    scale = min(ROOM[0] / width, ROOM[1] / height)
    sides = [max(LEAST, round(n * scale, 2)) for n in (width, height, across, down)]
    named, *more = _words_of(tensor_map)
    title = f"map {number}: {', '.join((named, *more))}"
    style = "conflict" if is_wrong else "taken"
    most = int((PITCH - 10) / text_width("0"))
    lines = [f"#{number} {named}", *more]
    cells = [words(x, y, _cut(lines[0], most), "strong", LINE)]
    top = y + LINE + 2
    cells.append(Cell(x, top, "tensor", "", title, columns=sides[0], rows=sides[1]))
    # A box may be larger than its tensor; the picture cuts it at the tensor's edge.
    box = min(sides[2], sides[0]), min(sides[3], sides[1])
    cells.append(Cell(x, top, style, "", title, columns=box[0], rows=box[1], hatched=is_wrong))
    for n, line in enumerate(lines[1:]):
        at = top + ROOM[1] + LINE * n
        cells.append(words(x, at, _cut(line, most), "muted", LINE))
    return cells


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _planes(tensor_map: TensorMap) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the two innermost extents and box entries; for im2col, channels and pixels."""
    a = tensor_map.arguments
    # Innermost first; a tensor of rank 1 has one row.
    dims, box = (*a.global_dim, 1), (*a.box_dim, 1)
    if not a.box_dim:
        box = a.channels_per_pixel, a.pixels_per_column
    return (int(dims[0]), int(dims[1])), (int(box[0]), int(box[1]))


def _words_of(tensor_map: TensorMap) -> tuple[str, str, str]:
    """Return the type and swizzle, the tensor, and the box, row-major."""
    a = tensor_map.arguments
    box = " x ".join(map(str, a.box_dim[::-1]))
    tile = f"box {box}" if a.box_dim else f"{a.pixels_per_column} px x {a.channels_per_pixel} ch"
    swizzle = "" if a.swizzle == 0 else f" {a.swizzle.name}"
    return f"{a.data_type.name}{swizzle}", " x ".join(map(str, a.global_dim[::-1])), tile


@opaque
def multiples(maps: Iterable[tuple[int, TensorMap, bool]], title: str) -> Multiples:
    """Show maps as small multiples; each entry is (number, map, whether the map has a finding).

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 128), np.float16), (8, 64), swizzle="bytes128")
    >>> print(multiples([(1, tm, False)], "1 map"))
    1 map
      #1 FLOAT16 bytes128, 64 x 128, box 8 x 64
    """
    return Multiples(title, tuple(maps))
