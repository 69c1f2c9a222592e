"""Colours and fonts of the pictures, light and dark, as one table of styles.

Plain SVG attributes carry the light colours, so that a viewer that drops style sheets still shows
the picture. The style sheet inside each picture adds the dark ones: `prefers-color-scheme` of an
image follows the colour scheme of the page around it, and `live.js` replaces the query by what it
sees of the page's background.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


@dataclass(frozen=True, slots=True)
class Style:
    """How an item looks: (light, dark) colours, and what is no colour as SVG attributes."""

    fill: tuple[str, str] = ("none", "none")
    stroke: tuple[str, str] = ("none", "none")
    attributes: str = ""


_INK = ("#1f2328", "#e6edf3")
_MUTED = ("#57606a", "#a3adb8")
_GRID = ("#8c959f", "#6e7781")
_ALARM = ("#b42318", "#ff9a8f")
_PAPER = ("#ffffff", "#15191f")
#: One tint per 16-byte chunk of a row, so that a swizzle shows as a pattern of colours too.
_TINTS = tuple(
    (f"hsl({hue},70%,{88 - 4 * (n % 2)}%)", f"hsl({hue},38%,{24 + 5 * (n % 2)}%)")
    for n, hue in enumerate(range(200, 560, 45))
)

STYLES: dict[str, Style] = {
    "paper": Style(_PAPER, ("#d0d7de", "#3d444d")),
    "label": Style(_INK),
    "strong": Style(_INK, attributes='font-weight="bold"'),
    "muted": Style(_MUTED),
    "alarm": Style(_ALARM, attributes='font-weight="bold"'),
    "rule": Style(stroke=_GRID),
    "axis": Style(stroke=_INK, attributes='stroke-width="1.5"'),
    "grid": Style(stroke=_GRID, attributes='stroke-dasharray="2 3"'),
    "hatch": Style(stroke=("#d1242f", "#f47067"), attributes='stroke-opacity="0.35"'),
    "plain": Style(attributes='pointer-events="all"'),
    "cell": Style(("#f6f8fa", "#21262d"), _GRID),
    "tensor": Style(("#eef4fb", "#1b2a3d"), ("#4a7ab5", "#6ea8ec")),
    "ground": Style(("#eef4fb", "#1b2a3d")),
    "edge": Style(stroke=("#4a7ab5", "#6ea8ec")),
    "taken": Style(("#9cc7f0", "#2f5f93"), ("#1f5fa8", "#8ec2ff")),
    "box": Style(stroke=("#1f5fa8", "#8ec2ff"), attributes='stroke-width="2.5"'),
    "filled": Style(("#fbe9e7", "#3c2020"), ("#d1242f", "#f47067")),
    "padding": Style(_PAPER, _GRID, 'stroke-dasharray="3 3"'),
    "window": Style(
        stroke=("#8250df", "#c297ff"), attributes='stroke-width="2.5" stroke-dasharray="7 4"'
    ),
    "shifted": Style(stroke=("#8250df", "#c297ff"), attributes='stroke-width="2.5"'),
    "frame": Style(stroke=("#b42318", "#ff9a8f"), attributes='stroke-width="1.5"'),
    "changed": Style(("#ffd33d", "#9e6a03"), ("#7a4100", "#ffd33d"), 'stroke-width="1.5"'),
    "hit": Style(("#9cc7f0", "#2f5f93"), ("#1f5fa8", "#8ec2ff")),
    "conflict": Style(("#f5b5ae", "#7d2a25"), ("#b42318", "#ff9a8f"), 'stroke-width="1.5"'),
    **{f"tint{n}": Style(tint, _GRID) for n, tint in enumerate(_TINTS)},
}


#: The query that `live.js` looks for.
DARK = "@media (prefers-color-scheme:dark)"


def style_sheet(names: Iterable[str] = tuple(STYLES)) -> str:
    """Give the CSS of some styles, for the inside of one SVG document.

    >>> style_sheet(["muted"])
    '.t-muted{fill:#57606a;stroke:none}@media (prefers-color-scheme:dark){.t-muted{fill:#a3adb8}}'
    """
    light, dark = "", ""
    for name in names:
        style = STYLES[name]
        light += f".t-{name}{{fill:{style.fill[0]};stroke:{style.stroke[0]}}}"
        night = f"fill:{style.fill[1]};" * (style.fill[1] != "none")
        night += f"stroke:{style.stroke[1]};" * (style.stroke[1] != "none")
        dark += f".t-{name}{{{night[:-1]}}}"
    return f"{light}{DARK}{{{dark}}}"
