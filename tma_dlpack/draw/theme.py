"""Colours and fonts of the pictures, light and dark, as one table of styles.

Plain SVG attributes carry the light colours, so that a viewer that drops style sheets still shows
the picture. The style sheet adds the dark ones: by the reader's system, and in a notebook by its
own theme.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STYLES", "Style", "style_sheet"]

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
    "cell": Style(("#f6f8fa", "#21262d"), _GRID),
    "tensor": Style(("#eef4fb", "#1b2a3d"), ("#4a7ab5", "#6ea8ec")),
    "taken": Style(("#9cc7f0", "#2f5f93"), ("#1f5fa8", "#8ec2ff")),
    "box": Style(stroke=("#1f5fa8", "#8ec2ff"), attributes='stroke-width="2.5"'),
    "filled": Style(("#fbe9e7", "#3c2020"), ("#d1242f", "#f47067")),
    "padding": Style(_PAPER, _GRID, 'stroke-dasharray="3 3"'),
    "window": Style(
        stroke=("#8250df", "#c297ff"), attributes='stroke-width="2.5" stroke-dasharray="7 4"'
    ),
    "changed": Style(("#ffd33d", "#9e6a03"), ("#7a4100", "#ffd33d"), 'stroke-width="1.5"'),
    "hit": Style(("#9cc7f0", "#2f5f93"), ("#1f5fa8", "#8ec2ff")),
    "conflict": Style(("#f5b5ae", "#7d2a25"), ("#b42318", "#ff9a8f"), 'stroke-width="1.5"'),
    **{f"tint{n}": Style(tint, _GRID) for n, tint in enumerate(_TINTS)},
}


def style_sheet() -> str:
    """Give the CSS of all styles: dark by the system, overruled by a notebook's own theme."""
    light, dark = (
        "".join(
            f"--tma-{name}:{style.fill[i]};--tma-{name}-line:{style.stroke[i]};"
            for name, style in STYLES.items()
        )
        for i in (0, 1)
    )
    uses = "".join(
        f".tma .t-{name}{{fill:var(--tma-{name});stroke:var(--tma-{name}-line)}}" for name in STYLES
    )
    is_light = ('[data-jp-theme-light="true"] .tma', ".vscode-light .tma")
    is_dark = ('[data-jp-theme-light="false"] .tma', ".vscode-dark .tma", "html[theme=dark] .tma")
    return (
        f".tma{{{light}}}"
        f"@media (prefers-color-scheme:dark){{.tma{{{dark}}}}}"
        f"{','.join(is_light)}{{{light}}}{','.join(is_dark)}{{{dark}}}"
        f"{uses}.tma text{{stroke:none;font-family:{MONO}}}"
        ".tma .t-hatch{fill:none}"
    )
