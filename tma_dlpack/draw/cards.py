"""Views of maps, tiles and reports as HTML for notebooks, and whole HTML pages.

This file escapes every value, and every text of the user.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.boxes import tensor
from tma_dlpack.draw.figure import MAKE_ONE, TEXT_COLUMNS, Figure, fragment, require
from tma_dlpack.draw.grid import LETTER_WIDTH, MARGIN, NARROW, Cell, Grid, Scene, lay_out, words
from tma_dlpack.draw.map_bytes import fields_of, is_of_host_tensor
from tma_dlpack.draw.memory import SharedMemory, shared
from tma_dlpack.draw.walks import Im2colWalk, walk
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import Advice, Finding, TmaError, TmaPreconditionError
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.text import map_rows, tile_line

if TYPE_CHECKING:
    from tma_dlpack.checks.report import Report

MOST_VALUES = 8  # maximum number of values of a tile along one axis
MOST_BYTES = 400_000  # the figures of a larger card are shortened
_NARROW = re.compile(r' data-narrow="[^"]*"')  # the phone layout of a panel


def page(title: str, parts: Sequence[Figure | str]) -> str:
    """Return a whole HTML document, in the light or dark colours of the reader's system.

    Parameters
    ----------
    title : str
    parts : list or tuple of Figure or str
        Figures, and pieces of finished HTML such as `report_html(report)`.

    Returns
    -------
    str

    Raises
    ------
    TmaPreconditionError
        If `title`, `parts` or an item of `parts` has another type.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> from tma_dlpack import draw
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (8, 64))
    >>> page("my map", [draw.tensor(tm), draw.shared(tm)])[:15]
    '<!doctype html>'
    """
    require("title", title, (str,), "pass a word")
    require("parts", parts, (list, tuple), "pass a list of figures")
    for n, part in enumerate(parts):
        require(f"parts[{n}]", part, (Figure, str), "pass draw.shared(tensor_map), or HTML")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title>"
        "<style>body{font-family:system-ui,sans-serif;font-size:14px;margin:16px;"
        "background:Canvas;color:CanvasText}</style></head>"
        f"<body>{fragment(parts)}</body></html>\n"
    )


def tensor_map_html(tensor_map: TensorMap) -> str:
    """Return a map as HTML: its facts, the tensor, the first tile, and the 128 bytes (collapsed).

    Parameters
    ----------
    tensor_map : TensorMap

    Returns
    -------
    str
        A fragment with its own style sheet. If the fragment would be larger than 400 KB, its
        figures are shortened, with a note. If `load_tile` would refuse the first tile, the reason
        replaces the figures of the tile.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> "<td>global_dim</td><td>(104, 30)</td>" in tensor_map_html(tm)
    True
    """
    require("tensor_map", tensor_map, (TensorMap,), MAKE_ONE)
    title = repr(tensor_map)
    if is_of_host_tensor(tensor_map):
        # Omit a host address: it differs in each run, and would change the outputs of a notebook.
        title = title.replace(f", at {tensor_map.global_address:#x}", "")
    parts: list[Figure | str] = [bold(title), plain(tile_line(tensor_map))]
    parts.append(table_html(("row-major", "", "innermost first", ""), map_rows(tensor_map)))
    parts += map(finding_html, tensor_map.advice)
    for draw in (tensor if tensor_map.kind == "tiled" else walk, shared, _folded_bytes):
        try:
            part = draw(tensor_map)
        except TmaError as error:
            part = f"<p>not drawn: {html.escape(_sentence(error))}</p>"
        if part not in parts:  # two figures may be refused for the same reason
            parts.append(part)
    return _card(parts)


def tile_html(tile: Tile) -> str:
    """Return a tile as HTML: its place in the tensor and in shared memory, and its first values.

    Parameters
    ----------
    tile : Tile
        One tile, or the tiles of `load_tiles`. Only the values of the first tile are shown.

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.ones((30, 104), np.float16), (8, 64))
    >>> from tma_dlpack.copies.simulator import SimulatorBackend
    >>> "out of bounds" in tile_html(SimulatorBackend().load_tile(tm, (24, 64)))
    True
    """
    require("tile", tile, (Tile,), "load one: load_tile(tensor_map, coords)")
    parts: list[Figure | str] = [bold(repr(tile))]
    # Only a single tile has a picture. The `smem` of several tiles has a second dimension.
    if tile.smem.ndim == 1:
        parts.append(tensor(tile) if tile.tensor_map.kind == "tiled" else walk(tile))
        parts.append(shared(tile))
    parts.append(_values(tile))
    return _card(parts)


def _sentence(error: TmaError) -> str:
    if isinstance(error, TmaPreconditionError):
        return "; ".join(f"{v.found}; {v.limit} ({v.rule})" for v in error.violations)
    return str(error)


def _card(parts: Sequence[Figure | str]) -> str:
    """Join the parts of a card, and make the card smaller if it is too large.

    First, its figures are shortened. If the card is still too large, the phone layouts are omitted.
    """
    card = fragment(parts)
    if len(card.encode()) <= MOST_BYTES:
        return card
    kinds = Im2colWalk, SharedMemory
    card = fragment([part.brief() if isinstance(part, kinds) else part for part in parts])
    return card if len(card.encode()) <= MOST_BYTES else _NARROW.sub("", card)


def report_html(report: Report) -> str:
    """Return a report as HTML: findings with limit, fix and source, and accepted arguments.

    Parameters
    ----------
    report : Report

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> report = tma.check_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(16, 3))
    >>> "BOX_INNER_16B" in report_html(report), "box_sizes=(16, 4)" in report_html(report)
    (True, True)
    """
    return fragment(report_parts(report))


def report_parts(report: Report) -> list[str]:
    """Return the pieces of HTML that `report_html` joins, for a page that has other pieces too."""
    from tma_dlpack.checks.report import Report

    require("report", report, (Report,), "pass the result of check_tma_descriptor(x, ...)")
    refused = f"✗ refused: {counted(len(report.violations), 'violation')}"
    parts = [bold("✓ accepted" if report.ok else refused)]
    parts += map(finding_html, (*report.violations, *report.advice))
    changes = report.changes() if not report.ok else {}
    if changes is None:
        why = "No change of the arguments fixes this: the tensor itself must change."
        if any(v.rule == "ARGUMENT" for v in report.violations):
            why = "An argument is not clear, or the tensor itself must change."
        parts.append(f"<p>{why}</p>")
    elif not report.ok:
        named = ((k, v.name if isinstance(v, Enum) else v) for k, v in changes.items())
        code = html.escape(", ".join(f"{argument}={value!r}" for argument, value in named))
        parts.append(f"<p>accepted with <code>{code}</code>: see <code>report.fixed()</code></p>")
    return parts


def finding_html(finding: Finding, *, with_argument: bool = True) -> str:
    """Return a finding as HTML that begins with its kind, for readers who do not see colours."""
    kind = "advice" if isinstance(finding, Advice) else "violation"
    argument = f"{finding.argument}: " if with_argument else ""
    words = html.escape(f"{argument}{finding.found}; {finding.limit}")
    return (
        f'<div class="tma-finding tma-{kind}"><div><b>{kind} {html.escape(finding.rule)}</b> '
        f"{words}</div>{plain(f'fix: {finding.fix}')}{plain(f'source: {finding.source}')}</div>"
    )


def _folded_bytes(tensor_map: TensorMap) -> str:
    panels = fields_of(tensor_map).panels()
    return f"<details><summary>the 128 bytes</summary>{panels}</details>"


def plain(text: str) -> str:
    """Return a text as one escaped line of HTML."""
    return f"<div>{html.escape(text)}</div>"


def bold(text: str) -> str:
    """Return a text as one escaped line of HTML, in bold."""
    return f"<div><b>{html.escape(text)}</b></div>"


def table_html(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return an HTML table, in which the text of every cell is escaped."""
    head = "".join(f"<th>{html.escape(h)}</th>" for h in heads)
    lines = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table class="tma-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _values(tile: Tile) -> str:
    """Return a table of the first values of the logical tile; a star marks out-of-bounds values."""
    if not tile.array.size:
        return "<div>no tiles</div>"
    pairs = zip(_corner(tile.array).tolist(), _corner(tile.filled).tolist(), strict=True)
    rows = [[f"{v}{'*' * out}" for v, out in zip(*pair, strict=True)] for pair in pairs]
    words = f"first values of tile.array, shape {tile.array.shape}; * filled"
    return plain(words) + table_html(map(str, range(len(rows[0]))), rows)


def _corner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    while array.ndim > 2:
        array = array[0]
    return np.atleast_2d(array)[:MOST_VALUES, :MOST_VALUES]


# --- Small multiples of maps ----------------------------------------------------------------------

PITCH, LINE = 138, 14  # px: distance from one picture to the next, height of a line of text
ROOM = 112, 56  # px: maximum width and height of a drawn tensor
LEAST = 3  # minimum px of a side
MOST_MAPS = 100
LEGEND = [
    (Cell(0, 0, "tensor"), "the two innermost dimensions"),
    (Cell(0, 0, "taken"), "the box, to scale"),
    (Cell(0, 0, "conflict", hatched=True), "of a map with a finding"),
]


@dataclass(frozen=True, slots=True, repr=False)
class Multiples(Figure):
    """Small pictures of several maps, in rows.

    Attributes
    ----------
    maps : tuple of (number, TensorMap, bool)
        The number of the map, the map, and True if the map has a finding.
    """

    title: str
    maps: tuple[tuple[int, TensorMap, bool], ...]

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel, with up to 8 maps in a row."""
        return (self._scene(8, is_narrow=False),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone, with as many maps in a row as fit."""
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
    """Draw the two innermost dimensions of a tensor with the box in a corner, and describe both."""
    a = tensor_map.arguments
    # The box, innermost dimension first. An im2col map has channels and pixels instead.
    box = a.box_dim or (a.channels_per_pixel, a.pixels_per_column)
    # A tensor of rank 1 is drawn with one row.
    (width, height), (across, down) = ((*numbers, 1)[:2] for numbers in (a.global_dim, box))
    scale = min(ROOM[0] / width, ROOM[1] / height)
    w, h, box_w, box_h = (max(LEAST, round(n * scale, 2)) for n in (width, height, across, down))
    named, *more = _words_of(tensor_map)
    title, style = f"map {number}: {', '.join((named, *more))}", "conflict" if is_wrong else "taken"
    top = y + LINE + 2
    cells = [
        words(x, y, _cut(f"#{number} {named}"), "strong", LINE),
        Cell(x, top, "tensor", "", title, w, h),
        # A box may be larger than its tensor; the picture cuts it at the tensor's edge.
        Cell(x, top, style, "", title, min(box_w, w), min(box_h, h), hatched=is_wrong),
    ]
    for n, line in enumerate(more):
        cells.append(words(x, top + ROOM[1] + LINE * n, _cut(line), "muted", LINE))
    return cells


def _cut(line: str) -> str:
    most = int((PITCH - 10) / LETTER_WIDTH)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _words_of(tensor_map: TensorMap) -> tuple[str, str, str]:
    """Return three texts: type with swizzle, row-major shape of the tensor, and row-major box."""
    a = tensor_map.arguments
    box = " x ".join(map(str, a.box_dim[::-1]))
    tile = f"box {box}" if a.box_dim else f"{a.pixels_per_column} px x {a.channels_per_pixel} ch"
    swizzle = "" if a.swizzle == 0 else f" {a.swizzle.name}"
    return f"{a.data_type.name}{swizzle}", " x ".join(map(str, a.global_dim[::-1])), tile


@opaque
def multiples(maps: Iterable[tuple[int, TensorMap, bool]], title: str) -> Multiples:
    """Show maps as small pictures; each entry is (number, map, True if the map has a finding).

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
