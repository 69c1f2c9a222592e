"""What a notebook shows of a map, a tile and a report: facts as HTML, pictures below them.

Every word of the user's, and every value, passes `html.escape` here.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tma_dlpack.checks.report import Report
from tma_dlpack.copies.rule_list import RuleList, as_rows
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.bits import fields_of
from tma_dlpack.draw.boxes import tensor
from tma_dlpack.draw.door import MAKE_ONE, require
from tma_dlpack.draw.figure import Figure, fragment
from tma_dlpack.draw.im2col_walk import Im2colWalk
from tma_dlpack.draw.memory import SharedMemory, shared
from tma_dlpack.draw.walks import walk
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import Advice, Finding, TmaError, TmaPreconditionError
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.text import map_rows, tile_line

MOST_VALUES = 8  # of a tile, shown along one axis
MOST_BYTES = 400_000  # of a card, before its figures are cut short


def tensor_map_html(tensor_map: TensorMap) -> str:
    """Give a map as HTML: facts in both orders, the tensor and the tile, the bytes folded away.

    Parameters
    ----------
    tensor_map : TensorMap

    Returns
    -------
    str
        A fragment with its own style sheet, at most 400 KB: larger figures are cut short and say
        so. If `load_tile` would refuse the first tile, the reason stands in place of its figures.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64))
    >>> "<td>global_dim</td><td>(104, 30)</td>" in tensor_map_html(tm)
    True
    """
    require("tensor_map", tensor_map, (TensorMap,), MAKE_ONE)
    heading = f"<div><b>{html.escape(repr(tensor_map))}</b></div>"
    parts: list[Figure | str] = [heading, f"<div>{html.escape(tile_line(tensor_map))}</div>"]
    parts.append(table_html(("row-major", "", "innermost first", ""), map_rows(tensor_map)))
    parts += [finding_html(advice) for advice in tensor_map.advice]
    parts += _drawn(
        lambda: tensor(tensor_map) if tensor_map.kind == "tiled" else walk(tensor_map),
        lambda: shared(tensor_map),
        lambda: _folded("the 128 bytes", fields_of(tensor_map)),
    )
    return _card(parts)


def tile_html(tile: Tile) -> str:
    """Give a tile as HTML: where it comes from, where it lies, and its first values.

    Parameters
    ----------
    tile : Tile
        One tile, or the many of `load_tiles`, of which only the values of the first are shown.

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
    parts: list[Figure | str] = [f"<div><b>{html.escape(repr(tile))}</b></div>"]
    if tile.smem.ndim == 1:
        parts.append(tensor(tile) if tile.tensor_map.kind == "tiled" else walk(tile))
        parts.append(shared(tile))
    parts.append(_values(tile))
    return _card(parts)


def _drawn(*draws: Callable[[], Figure | str]) -> list[Figure | str]:
    """Draw each figure; if one is refused, show the reason once instead."""
    parts: list[Figure | str] = []
    for draw in draws:
        try:
            part = draw()
        except TmaError as error:
            part = f"<p>not drawn: {html.escape(_sentence(error))}</p>"
        if part not in parts:
            parts.append(part)
    return parts


def _sentence(error: TmaError) -> str:
    if isinstance(error, TmaPreconditionError):
        return "; ".join(f"{v.found}; {v.limit} ({v.rule})" for v in error.violations)
    return str(error)


def _card(parts: Sequence[Figure | str]) -> str:
    """Join the parts of a card; figures that would make it too large are cut short."""
    card = fragment(parts)
    if len(card.encode()) <= MOST_BYTES:
        return card
    return fragment(
        [part.brief() if isinstance(part, (Im2colWalk, SharedMemory)) else part for part in parts]
    )


def report_html(report: Report) -> str:
    """Give a report as HTML: the verdict, every finding with limit, fix and source, and the repair.

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


def rules_html(rules: RuleList) -> str:
    """Give a list of rules as an HTML table.

    Parameters
    ----------
    rules : RuleList
        As `tma.rules()` gives it.

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> "<td>BOX_IN_SHAPE</td>" in rules_html(tma.rules("rule"))
    True
    """
    require("rules", rules, (RuleList,), "pass tma.rules()")
    heads, *rows = as_rows(rules)
    return fragment([table_html(heads, rows)])


def report_parts(report: Report) -> list[str]:
    """Give the pieces of `report_html`, to stand among others in a page."""
    require("report", report, (Report,), "pass the result of check_tma_descriptor(x, ...)")
    refused = f"✗ refused: {counted(len(report.violations), 'violation')}"
    verdict = "✓ accepted" if report.ok else refused
    parts = [f"<div><b>{verdict}</b></div>"]
    parts += [finding_html(finding) for finding in (*report.violations, *report.advice)]
    if not report.ok:
        parts.append(_repair(report))
    return parts


def _repair(report: Report) -> str:
    changes = report.changes()
    if changes is None:
        return "<p>No change of the arguments fixes this: the tensor itself must change.</p>"
    changed = ", ".join(f"{argument}={_word(value)}" for argument, value in changes.items())
    return (
        f"<p>accepted with <code>{html.escape(changed)}</code>: see <code>report.fixed()</code></p>"
    )


def _word(value: object) -> str:
    name = getattr(value, "name", None)
    return repr(name if isinstance(name, str) else value)


def finding_html(finding: Finding, *, with_argument: bool = True) -> str:
    """Give one finding as a block; the word before it says its kind without colour."""
    kind = "advice" if isinstance(finding, Advice) else "violation"
    rows = (("fix", finding.fix), ("source", finding.source))
    more = "".join(f"<div>{name}: {html.escape(text)}</div>" for name, text in rows)
    argument = f"{html.escape(finding.argument)}: " if with_argument else ""
    said = f"{argument}{html.escape(finding.found)}; {html.escape(finding.limit)}"
    return (
        f'<div class="tma-finding tma-{kind}"><div><b>{kind} {html.escape(finding.rule)}</b> '
        f"{said}</div>{more}</div>"
    )


def _folded(summary: str, figure: Figure) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>{figure.panels()}</details>"


def table_html(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Give a table; every word is escaped."""
    head = "".join(f"<th>{html.escape(h)}</th>" for h in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<table class="tma-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _values(tile: Tile) -> str:
    """Give the first values of the logical tile; out-of-bounds ones are marked with a star."""
    if not tile.array.size:
        return "<div>no tiles</div>"
    array, filled = _corner(tile.array), _corner(tile.filled)
    rows = [
        [f"{value}{'*' if out else ''}" for value, out in zip(*pair, strict=True)]
        for pair in zip(array.tolist(), filled.tolist(), strict=True)
    ]
    said = f"first values of tile.array, shape {tile.array.shape}; * filled"
    return f"<div>{html.escape(said)}</div>" + table_html(map(str, range(len(rows[0]))), rows)


def _corner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    while array.ndim > 2:
        array = array[0]
    return np.atleast_2d(array)[:MOST_VALUES, :MOST_VALUES]
