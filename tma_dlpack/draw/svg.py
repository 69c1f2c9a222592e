"""Scenes as SVG text: the styles, light and dark, and the one place that writes and escapes tags.

Plain SVG attributes carry the light colours of a file, so that a viewer that drops style sheets
still shows the picture. The style sheet inside each picture adds the dark ones:
`prefers-color-scheme` of an image follows the colour scheme of the page around it, and `live.js`
replaces the query by what it sees of the page's background.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from tma_dlpack.draw.grid import (
    LABEL_SIZE,
    LINE_HEIGHT,
    WORDS,
    Cell,
    Scene,
    bounds,
    fitted,
    text_width,
)

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ROW_WIDTH = 1240  # panels are placed side by side up to here, px
GAP, MARGIN = 12, 8
TITLE_SIZE, TITLE_HEIGHT = 12, 28
BASELINE = 0.93  # of a label, from the top of its line, in font sizes
HATCH_GAP, TOOTH, TOOTH_DEPTH, HEAD = 7, 6, 3, 6  # px

#: CSS that stops every animation for readers who do not want motion.
STILL = "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
#: The query that `live.js` looks for.
DARK = "@media (prefers-color-scheme:dark)"

Pair = tuple[str, str]  # light, dark


class Style(NamedTuple):
    """How a cell looks: (light, dark) colours, and what is no colour as SVG attributes."""

    fill: Pair = ("none", "none")
    stroke: Pair = ("none", "none")
    attributes: str = ""


_INK = ("#1f2328", "#e6edf3")
_GRID = ("#8c959f", "#6e7781")
_ALARM = ("#b42318", "#ff9a8f")
_PAPER = ("#ffffff", "#15191f")
_BLUE, _EDGE = ("#1f5fa8", "#8ec2ff"), ("#4a7ab5", "#6ea8ec")
_TAKEN, _GROUND = ("#9cc7f0", "#2f5f93"), ("#eef4fb", "#1b2a3d")
_RED, _VIOLET = ("#d1242f", "#f47067"), ("#8250df", "#c297ff")
_BOLD, _THICK = 'font-weight="bold"', 'stroke-width="2.5"'
#: One tint per 16-byte chunk of a row, so that a swizzle shows as a pattern of colours too.
_TINTS = tuple(
    (f"hsl({hue},70%,{88 - 4 * (n % 2)}%)", f"hsl({hue},38%,{24 + 5 * (n % 2)}%)")
    for n, hue in enumerate(range(200, 560, 45))
)

STYLES: dict[str, Style] = {
    "paper": Style(_PAPER, ("#d0d7de", "#3d444d")),
    "label": Style(_INK),
    "strong": Style(_INK, attributes=_BOLD),
    "muted": Style(("#57606a", "#a3adb8")),
    "alarm": Style(_ALARM, attributes=_BOLD),
    "axis": Style(stroke=_INK, attributes='stroke-width="1.5"'),
    "arrow": Style(stroke=_BLUE, attributes='stroke-width="1.3"'),
    "way": Style(stroke=_INK),
    "grid": Style(stroke=_GRID, attributes='stroke-dasharray="2 3"'),
    "hatch": Style(stroke=_RED, attributes='stroke-opacity="0.35"'),
    "plain": Style(attributes='pointer-events="all"'),
    "cell": Style(("#f6f8fa", "#21262d"), _GRID),
    "tensor": Style(_GROUND, _EDGE),
    "ground": Style(_GROUND),
    "edge": Style(stroke=_EDGE),
    "zigzag": Style(_PAPER, _EDGE),
    "taken": Style(_TAKEN, _BLUE),
    "box": Style(stroke=_BLUE, attributes=_THICK),
    "handle": Style(_BLUE, _PAPER),
    "filled": Style(("#fbe9e7", "#3c2020"), _RED),
    "padding": Style(_PAPER, _GRID, 'stroke-dasharray="3 3"'),
    "window": Style(stroke=_VIOLET, attributes=f'{_THICK} stroke-dasharray="7 4"'),
    "shifted": Style(stroke=_VIOLET, attributes=f'{_THICK} stroke-linecap="square"'),
    "frame": Style(stroke=_ALARM, attributes='stroke-width="1.5"'),
    "changed": Style(("#ffd33d", "#9e6a03"), ("#7a4100", "#ffd33d"), 'stroke-width="1.5"'),
    "conflict": Style(("#f5b5ae", "#7d2a25"), _ALARM, 'stroke-width="1.5"'),
    "even": Style(("#eaeef2", "#2a3038"), _GRID),
    "odd": Style(("#f6d07f", "#6b4f0c"), _GRID),
    **{f"tint{n}": Style(tint, _GRID) for n, tint in enumerate(_TINTS)},
}


def style_sheet(names: Iterable[str] = tuple(STYLES)) -> str:
    """Return the CSS of some styles, for the inside of one SVG document.

    >>> style_sheet(["muted"])
    '.t-muted{fill:#57606a;stroke:none}@media (prefers-color-scheme:dark){.t-muted{fill:#a3adb8}}'
    """
    light, dark = "", ""
    for name in names:
        fill, stroke, _ = STYLES[name]
        light += f".t-{name}{{fill:{fill[0]};stroke:{stroke[0]}}}"
        night = f"fill:{fill[1]};" * (fill[1] != "none")
        night += f"stroke:{stroke[1]};" * (stroke[1] != "none")
        dark += f".t-{name}{{{night[:-1]}}}"
    return f"{light}{DARK}{{{dark}}}"


def _classed(name: str) -> str:
    """Return a cell's class and what is no colour."""
    attributes = STYLES[name].attributes
    return f' class="t-{name}"' + f" {attributes}" * bool(attributes)


def _coloured(name: str) -> str:
    """Return a cell's class, and the light colours for viewers without style sheets."""
    fill, stroke, _ = STYLES[name]
    line = f' stroke="{stroke[0]}"' * (stroke[0] != "none")
    return f'{_classed(name)} fill="{fill[0]}"{line}'


Look = Callable[[str], str]  # style -> attributes

# --- Documents ------------------------------------------------------------------------------------


def svg_panel(scene: Scene) -> str:
    """Return one scene as an SVG document whose style sheet carries all colours."""
    body = f"<style>{_sheet((scene,))}</style>{_drawn(scene, _classed)}"
    return _document(scene.width, scene.height, scene.about, body, scene.data)


def svg_file(title: str, scenes: Sequence[Scene], row_width: int = ROW_WIDTH) -> str:
    """Return scenes as one SVG document: side by side up to `row_width` px."""
    placed: list[str] = []
    x, y, row_height = float(MARGIN), float(TITLE_HEIGHT), 0.0
    width = text_width(title, TITLE_SIZE) + MARGIN
    for scene in scenes:
        if placed and x + scene.width > row_width:
            x, y, row_height = float(MARGIN), y + row_height + GAP, 0.0
        placed.append(f'<g transform="translate({x:g} {y:g})">{_drawn(scene, _coloured)}</g>')
        x += scene.width + GAP
        width, row_height = max(width, x - GAP), max(row_height, scene.height)
    width, height = width + MARGIN, y + row_height + MARGIN
    body = (
        f'<style>{_sheet(scenes)}</style><rect width="{width:g}" height="{height:g}"'
        f'{_coloured("paper")}/><text x="{MARGIN}" y="19" font-size="{TITLE_SIZE}"'
        f"{_coloured('strong')}>{html.escape(title)}</text>{''.join(placed)}"
    )
    about = "; ".join([title, *(scene.about for scene in scenes)])
    return _document(width, height, about, body)


def _sheet(scenes: Sequence[Scene]) -> str:
    """Return the styles that are used, in the order of the table."""
    used = {"paper", "strong", "label", "hatch"}
    used |= {item.style for scene in scenes for item in scene.items}
    return style_sheet(name for name in STYLES if name in used) + "".join(s.css for s in scenes)


def _document(
    width: float, height: float, about: str, body: str, data: Iterable[tuple[str, str]] = ()
) -> str:
    attributes = "".join(f' data-{name}="{html.escape(value)}"' for name, value in data)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" font-family="{html.escape(MONO)}" '
        f'font-size="{LABEL_SIZE}" style="max-width:100%;height:auto"{attributes}>'
        f"<desc>{html.escape(about)}</desc>{body}</svg>"
    )


# --- Cells ----------------------------------------------------------------------------------------


def _drawn(scene: Scene, look: Look) -> str:
    """Draw the paper and the cells; neighbours of one `css` move as one group."""
    paper = Cell(0.5, 0.5, "paper", columns=scene.width - 1, rows=scene.height - 1)
    parts = [_cell(paper, look)]
    for css, cells in groupby(scene.items, key=lambda cell: cell.css):
        drawn = "".join(_cell(cell, look) for cell in cells)
        parts.append(f'<g style="{html.escape(css)}">{drawn}</g>' if css else drawn)
    return "".join(parts)


def _cell(c: Cell, look: Look) -> str:
    if c.style in WORDS:
        left, middle = bounds(c)[0], c.row + c.rows / 2
        return (
            f'<text x="{left:g}" y="{middle + 3.5:g}"{look(c.style)}>{html.escape(c.text)}</text>'
        )
    if not c.columns or not c.rows or c.style == "way":
        points = " ".join(f"{x:g},{y:g}" for x, y in _line(c))
        return f'<polyline points="{points}"{look(c.style)}/>'
    key = f' data-k="{html.escape(c.key)}"' * bool(c.key)
    to = f' data-to="{html.escape(" ".join(c.to))}"' * bool(c.to)
    parts = [f"<title>{html.escape(c.title)}</title>"] * bool(c.title)
    parts.append(
        f'<rect x="{c.column:g}" y="{c.row:g}" width="{c.columns:g}" height="{c.rows:g}"'
        f"{look(c.style)}{key}{to}/>"
    )
    if c.hatched:
        parts.append(f'<path d="{hatching(c.column, c.row, c.columns, c.rows)}"{look("hatch")}/>')
    if c.text:
        parts += _centred(c, look)
    return f"<g>{''.join(parts)}</g>" if len(parts) > 1 else parts[0]


def _centred(c: Cell, look: Look) -> list[str]:
    lines, size = fitted(c.text, c.columns - 3, c.rows - 2)
    pitch = size * LINE_HEIGHT
    x, baseline = c.column + c.columns / 2, c.row + (c.rows - pitch * len(lines)) / 2
    baseline += BASELINE * size
    smaller = "" if size == LABEL_SIZE else f' font-size="{size:.3g}"'
    return [
        f'<text x="{x:g}" y="{baseline + pitch * n:.4g}" text-anchor="middle"{smaller}'
        f"{look('label')}>{html.escape(line)}</text>"
        for n, line in enumerate(lines)
    ]


def _line(c: Cell) -> list[tuple[float, float]]:
    """Return the points of a line; a zigzag has teeth beside it, a vertical arrow a head."""
    if c.style == "arrow":
        x, end, back = c.column, c.row + c.rows, -HEAD if c.rows > 0 else HEAD
        tip = (x - HEAD / 2, end + back), (x, end), (x + HEAD / 2, end + back), (x, end)
        return [(x, c.row), (x, end), *tip]
    if c.style != "zigzag":
        return [(c.column, c.row), (c.column + c.columns, c.row + c.rows)]
    count = max(2, round((c.columns + c.rows) / TOOTH / 2) * 2)
    depth = TOOTH_DEPTH if c.anchor == "start" else -TOOTH_DEPTH  # to the right, or down
    points = []
    for n in range(count + 1):
        x, y = (0, depth * (n % 2)) if c.columns else (depth * (n % 2), 0)
        along = round(c.column + c.columns * n / count, 2), round(c.row + c.rows * n / count, 2)
        points.append((along[0] + x, along[1] + y))
    return points


def hatching(x: float, y: float, width: float, height: float) -> str:
    """Return the path of slanted lines within a rectangle (no `id` that pictures could share).

    >>> hatching(0, 0, 7, 7)
    'M0 7L7 0'
    """
    path, reach = [], HATCH_GAP
    while reach < width + height:
        low = (reach - min(reach, height), min(reach, height))
        high = (min(reach, width), reach - min(reach, width))
        path.append(f"M{x + low[0]:g} {y + low[1]:g}L{x + high[0]:g} {y + high[1]:g}")
        reach += HATCH_GAP
    return "".join(path)
