"""The base class of all figures, and the functions that write figures as SVG and HTML.

An SVG file has its light colours as attributes, so that it is also legible in a viewer that ignores
style sheets. The style sheet of each picture adds dark colours in a query `prefers-color-scheme`.
In an image, this query follows the colour scheme of the page. `live.js` replaces the query by a
query that depends on the real background of the page.

Sanitisers keep the pictures in the HTML, because each panel is an image. If scripts may run, a
script replaces each image by its SVG, and links the cells of all pictures.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tma_dlpack.draw.grid import (
    LABEL_SIZE,
    LINE,
    LINE_HEIGHT,
    NARROW_COLUMNS,
    NOTE_COLUMNS,
    STYLES,
    WORDS,
    Cell,
    Scene,
    bounds,
    fitted,
    text_width,
    words,
)
from tma_dlpack.tables.errors import argument_error

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ROW_WIDTH = 1240  # px; maximum width of a row of panels
PHONE_WIDTH = 400  # px; rows up to this width have the narrow layout
PHONE_SCALE = 1.2  # scale of the narrow layout, so that letters are 12 px high
GAP, MARGIN = 12, 8
TITLE_SIZE, TITLE_HEIGHT = 12, 28
BASELINE = 0.93  # distance of the baseline from the top of a line, per px of the font size
# px: gap between hatching lines, length and depth of a zigzag's tooth, size of an arrow's head.
HATCH_GAP, TOOTH, TOOTH_DEPTH, HEAD = 7, 6, 3, 6

#: CSS that stops every animation for readers who do not want motion.
STILL = "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
#: The media query of the dark colours, which `live.js` replaces.
DARK = "@media (prefers-color-scheme:dark)"
TEXT_COLUMNS = 100  # maximum number of characters per line of `text`
ALIKE = 2.5  # maximum ratio of the heights of two panels in one row
MAKE_ONE = "pass make_tma_descriptor(x, ...)"

LETTERS = 1.2  # scale of a panel on a page: labels of 10 units become letters of 12 px
ENLARGED = 1.15  # maximum additional scale of a panel on a wide page
# [words](key) in a caption.
_WORD = re.compile(r"\[(.+?)\]\((.+?)\)")
_ROW = "display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start;margin:4px 0"

#: The argument `kind` of `played` -> the script that plays figures of this kind. A page with such a
#: figure contains the script after `play.js`. Other folders add their kinds when they are imported.
PLAYERS: dict[str, Path] = {}


@cache
def script_source(*names: str | Path) -> str:
    """Join JavaScript or CSS files (paths, or names in `draw/`), and remove their comments."""
    text = "\n".join((Path(__file__).parent / n).read_text(encoding="utf-8") for n in names)
    # Remove block comments of whole lines, then comments after code such as `f(x);  // px`. Keep a
    # comment after code if it has quotation marks, because it may be part of a string.
    text = re.sub(r"^ */\*\*.*?\*/$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<=[;,{(}]) +// [^\"'`\n]*$", "", text, flags=re.MULTILINE)
    # Remove indentation, and lines that are only a comment.
    lines = (re.sub(r"^\s*(//.*)?", "", line) for line in text.splitlines())
    return "\n".join(filter(None, lines))


#: Tables and findings have the colours of their page. The style sheet itself has only a red and a
#: grey, which are legible on white and on black.
CSS = f".tma pre{{font-family:{MONO}}}{script_source('figure.css')}"


class Figure(ABC):
    """A picture as immutable data. Its attributes are the facts, and its methods draw the facts.

    `str(figure)` is the text for a terminal, at most 100 columns wide. A notebook shows `html()`.
    """

    __slots__ = ()

    title: str  # one line that describes the figure

    @property
    def sentence(self) -> str:
        """The caption, or "". In it, "[words](key)" links the words with the cells of `key`."""
        return ""

    @abstractmethod
    def scenes(self) -> tuple[Scene, ...]:
        """Return the panels of the picture."""

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return panels for a phone, at most `NARROW` px wide; by default, return `scenes()`."""
        return self.scenes()

    @abstractmethod
    def text(self) -> str:
        """Return the picture as text, at most 100 columns wide."""

    def svg(self, row_width: int = ROW_WIDTH) -> str:
        """Return one SVG document, to write to a file.

        Parameters
        ----------
        row_width : int
            Maximum width in pixels of a row of panels. If it is 400 or less, the panels have their
            phone layout, and are one below the other.

        Returns
        -------
        str
        """
        scenes = self.narrow_scenes() if row_width <= PHONE_WIDTH else self.scenes()
        return svg_file(self.title, scenes, row_width, _WORD.sub(r"\1", self.sentence))

    def html(self) -> str:
        """Return an HTML fragment for a notebook: images, and the script that links the images."""
        return fragment([self])

    def panels(self) -> str:
        """Return the HTML of the figure without style sheet and script, which `fragment` adds."""
        title = f'<div class="tma-title"><b>{html.escape(self.title)}</b></div>'
        return f"{title}{panel_row(self)}{prose(self.sentence)}"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    _repr_html_ = html

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """Return the formats for notebooks: HTML, an SVG for viewers without HTML, and text."""
        return {"text/html": self.html(), "image/svg+xml": self.svg(), "text/plain": self.text()}


def require(argument: str, value: object, kinds: tuple[type, ...], fix: str) -> None:
    """Raise an error if a value has none of the types `kinds`. No method of the value is called.

    >>> require("title", 3, (str,), "pass a word")
    Traceback (most recent call last):
    tma_dlpack.TmaPreconditionError: title is of type int; it must be a str
      fix: pass a word
      rule: ARGUMENT
    """
    # isinstance() could call a property `__class__` of the value.
    if not issubclass(type(value), kinds):
        names = " or a ".join(kind.__name__ for kind in kinds)
        found = f"{argument} is of type {type(value).__name__}"
        raise argument_error(argument, found, f"be a {names}", fix)


def prose(sentence: str) -> str:
    """Return a caption as HTML; marked words are highlighted together with the cells of their key.

    >>> prose("[Two](is-data)")
    '<p class="tma-prose"><span class="tma-word" tabindex="0" data-k="is-data">Two</span></p>'
    """
    word = r'<span class="tma-word" tabindex="0" data-k="\2">\1</span>'
    said = _WORD.sub(word, html.escape(sentence))
    return f'<p class="tma-prose">{said}</p>' if sentence else ""


def panel_row(figure: Figure) -> str:
    """Return the HTML of a figure's panels, in rows that wrap on a narrow page."""
    wide, narrow = figure.scenes(), figure.narrow_scenes()
    # id() of a wide panel -> its narrow panel. `side_by_side` returns the panels themselves, not
    # copies, so their ids stay valid.
    other = dict(zip(map(id, wide), narrow, strict=True))
    rows = ("".join(_still(scene, other[id(scene)]) for scene in row) for row in side_by_side(wide))
    return "".join(f'<div class="tma-panels" style="{_ROW}">{row}</div>' for row in rows)


def side_by_side(scenes: Sequence[Scene]) -> list[list[Scene]]:
    """Return rows of panels of similar height, because mixed heights would leave empty space.

    >>> heights = [Scene(9, height, "", ()) for height in (80, 300, 240)]
    >>> [[panel.height for panel in row] for row in side_by_side(heights)]
    [[80], [300, 240]]
    """
    rows: list[list[Scene]] = []
    for scene in scenes:
        heights = [scene.height, *(other.height for other in (rows or [[]])[-1])]
        if rows and max(heights) <= ALIKE * min(heights):
            rows[-1].append(scene)
        else:
            rows.append([scene])
    return rows


def _still(scene: Scene, narrow: Scene | None = None) -> str:
    """Return a panel as an `<img>` with the SVG as its source, and with the narrow layout as data.

    Sanitisers of untrusted notebooks and of code hosts remove SVG elements, scripts and style
    sheets, but they keep images. On a wide page, the panels of a row grow by the same factor, at
    most `ENLARGED`. On a narrow page, a panel wraps to a new row, so that its letters keep their
    size. A panel shrinks only if it is wider than the page.
    """
    data = base64.b64encode(svg_panel(scene).encode()).decode()
    other = ""
    if narrow is not None and narrow != scene:
        # Without a time (mtime=0), equal pictures have equal bytes.
        packed = gzip.compress(svg_panel(narrow).encode(), mtime=0)
        other = f' data-narrow="{base64.b64encode(packed).decode()}"'
    width, height = LETTERS * scene.width, LETTERS * scene.height
    return (
        f'<img class="tma-still" alt="{html.escape(scene.about)}" width="{width:g}" '
        f'height="{height:g}" style="flex:{width:g} 1 {width:g}px;min-width:0;max-width:min(100%,'
        f'{ENLARGED * width:g}px);height:auto"{other} src="data:image/svg+xml;base64,{data}">'
    )


def played(
    figure: Figure, kind: str, data: object, beside: str = "", still: Scene | None = None
) -> str:
    """Return the HTML of a figure with several pictures or frames; `play.js` shows one at a time.

    Without scripts, the HTML shows the panel `still` (by default the figure's first panel), and
    then the HTML `beside`.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    image = _still(still, still) if still else _still(figure.scenes()[0], figure.narrow_scenes()[0])
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return (
        f'<div class="tma-play" data-{kind}="{packed}">'
        f"<style>{script_source('play.css')}</style>"
        f'<div class="tma-title"><b>{html.escape(figure.title)}</b></div>'
        '<div class="tma-controls" hidden></div>'
        f'<div style="{_ROW}">{image}{beside}</div>'
        f"{prose(figure.sentence)}</div>"
    )


def fragment(parts: Sequence[Figure | str]) -> str:
    """Join figures and pieces of HTML, and let cells with the same key be highlighted together.

    A string in `parts` is HTML; the caller has escaped all text in it.
    """
    body = "".join(part if isinstance(part, str) else part.panels() for part in parts)
    script = ""
    if "tma-still" in body:
        players = dict.fromkeys(PLAYERS[kind] for kind in PLAYERS if f' data-{kind}="' in body)
        plays = ("play.js", *players) if "tma-play" in body else ()
        source = script_source("linked.js", "live.js", *plays)
        script = f"<script>(() => {{\n{source}\n}})();</script>"
    return f'<div class="tma"><style>{CSS}</style>{body}</div>{script}'


# --- SVG ------------------------------------------------------------------------------------------


def style_sheet(names: Iterable[str] = tuple(STYLES)) -> str:
    """Return the CSS of some styles, for one SVG document.

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


Look = dict[str, str]  # style -> attributes of a cell

#: The class and the attributes of each style, without colours.
CLASSED: Look = {
    name: f' class="t-{name}"' + f" {style.attributes}" * bool(style.attributes)
    for name, style in STYLES.items()
}
#: The class, the attributes and the light colours of each style, for viewers without style sheets.
COLOURED: Look = {
    name: f'{CLASSED[name]} fill="{fill}"' + f' stroke="{stroke}"' * (stroke != "none")
    for name, ((fill, _), (stroke, _), _) in STYLES.items()
}


def svg_panel(scene: Scene) -> str:
    """Return one scene as an SVG document with all colours in its style sheet."""
    return _document(scene, [scene], _drawn(scene, CLASSED))


def svg_file(
    title: str, scenes: Sequence[Scene], row_width: int = ROW_WIDTH, sentence: str = ""
) -> str:
    """Return an SVG document: the caption, and scenes in rows of at most `row_width` px."""
    placed: list[str] = []
    x, y, row_height = float(MARGIN), float(TITLE_HEIGHT), 0.0
    width = text_width(title, TITLE_SIZE) + MARGIN
    columns = NARROW_COLUMNS if row_width <= PHONE_WIDTH else NOTE_COLUMNS
    for line in textwrap.wrap(sentence, columns):
        placed.append(_cell(words(MARGIN, y - 6, line, "label", LINE), COLOURED))
        y, width = y + LINE, max(width, text_width(line) + MARGIN)
    for row in side_by_side(scenes):
        for n, scene in enumerate(row):
            # Begin a new line for each row of similar panels, and for a panel that does not fit.
            if row_height and (n == 0 or x + scene.width > row_width):
                x, y, row_height = float(MARGIN), y + row_height + GAP, 0.0
            placed.append(f'<g transform="translate({x:g} {y:g})">{_drawn(scene, COLOURED)}</g>')
            x += scene.width + GAP
            width, row_height = max(width, x - GAP), max(row_height, scene.height)
    width, height = width + MARGIN, y + row_height + MARGIN
    body = (
        f'<rect width="{width:g}" height="{height:g}"{COLOURED["paper"]}/>'
        f'<text x="{MARGIN}" y="19" font-size="{TITLE_SIZE}" text-anchor="start"'
        f"{COLOURED['strong']}>{html.escape(title)}</text>{''.join(placed)}"
    )
    about = "; ".join([title, *(scene.about for scene in scenes)])
    scale = PHONE_SCALE if row_width <= PHONE_WIDTH else 1
    return _document(Scene(width, height, about, ()), scenes, body, title, scale)


def _document(
    whole: Scene, scenes: Sequence[Scene], body: str, title: str = "", scale: float = 1
) -> str:
    """Return an SVG document with the styles that `scenes` use, in the order of `STYLES`.

    A panel has no <title>, because browsers would show the title as a tooltip everywhere in the
    panel. In a page, the `alt` of the image names the panel for screen readers. If a script has
    replaced the image, `linked.js` sets the `aria-label` of the SVG.
    """
    label = f' aria-label="{html.escape(whole.about)}"' * bool(title)
    name = f"<title>{html.escape(title)}</title>" * bool(title)
    used = {"paper", "strong", "label", "hatch"}
    used |= {item.style for scene in scenes for item in scene.items}
    sheet = style_sheet(name for name in STYLES if name in used) + "".join(s.css for s in scenes)
    data = "".join(f' data-{name}="{html.escape(value)}"' for name, value in whole.data)
    width, height = f"{whole.width:g}", f"{whole.height:g}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{whole.width * scale:g}" height="{whole.height * scale:g}" '
        f'viewBox="0 0 {width} {height}" role="img"{label} '
        f'font-family="{html.escape(MONO)}" text-anchor="middle" '
        f'font-size="{LABEL_SIZE}" style="max-width:100%;height:auto"{data}>'
        f"{name}<desc>{html.escape(whole.about)}</desc><style>{sheet}</style>{body}</svg>"
    )


def _drawn(scene: Scene, look: Look) -> str:
    """Draw the background and the cells; consecutive cells with the same `css` are one group."""
    paper = Cell(0.5, 0.5, "paper", columns=scene.width - 1, rows=scene.height - 1)
    parts = [_cell(paper, look)]
    for css, cells in groupby(scene.items, attrgetter("css")):
        drawn = "".join([_cell(cell, look) for cell in cells])
        parts.append(f'<g style="{html.escape(css)}">{drawn}</g>' if css else drawn)
    return "".join(parts)


def _cell(c: Cell, look: Look) -> str:
    if c.style in WORDS:
        # The baseline of a 10 px font is 3.5 px below the middle.
        x, y = bounds(c)[0], c.row + c.rows / 2 + 3.5
        begin = f'<text x="{x:g}" y="{y:g}" text-anchor="start"'
        return f"{begin}{look[c.style]}>{html.escape(c.text)}</text>"
    # Cells without width or height are lines.
    if not c.columns or not c.rows or c.style == "way":
        points = " ".join(f"{x:g},{y:g}" for x, y in _line(c))
        return f'<polyline points="{points}"{look[c.style]}/>'
    key = f' data-k="{html.escape(c.key)}"' * bool(c.key)
    to = f' data-to="{html.escape(" ".join(c.to))}"' * bool(c.to)
    parts = [f"<title>{html.escape(c.title)}</title>"] * bool(c.title)
    parts.append(
        f'<rect x="{c.column:g}" y="{c.row:g}" width="{c.columns:g}" height="{c.rows:g}"'
        f"{look[c.style]}{key}{to}/>"
    )
    if c.hatched:
        parts.append(f'<path d="{hatching(c.column, c.row, c.columns, c.rows)}"{look["hatch"]}/>')
    if c.text:
        parts += _centred(c, look)
    return f"<g>{''.join(parts)}</g>" if len(parts) > 1 else parts[0]


def _centred(c: Cell, look: Look) -> list[str]:
    lines = fitted(c.text, c.columns - 1, c.rows)
    pitch, x = LABEL_SIZE * LINE_HEIGHT, c.column + c.columns / 2
    baseline = c.row + (c.rows - pitch * len(lines)) / 2 + BASELINE * LABEL_SIZE
    return [
        f'<text x="{x:g}" y="{baseline + pitch * n:.4g}"{look["label"]}>{html.escape(line)}</text>'
        for n, line in enumerate(lines)
    ]


def _line(c: Cell) -> list[tuple[float, float]]:
    """Return the points of a line. A zigzag has teeth, and a vertical arrow has a head."""
    if c.style == "arrow":
        x, end, back = c.column, c.row + c.rows, -HEAD if c.rows > 0 else HEAD
        tip = (x - HEAD / 2, end + back), (x, end), (x + HEAD / 2, end + back), (x, end)
        return [(x, c.row), (x, end), *tip]
    if c.style != "zigzag":
        return [(c.column, c.row), (c.column + c.columns, c.row + c.rows)]
    # `count` is even, so that both ends of the zigzag are on the straight line.
    count = max(2, round((c.columns + c.rows) / TOOTH / 2) * 2)
    # If `depth` is positive, the teeth point right or down.
    depth = TOOTH_DEPTH if c.anchor == "start" else -TOOTH_DEPTH
    points = []
    for n in range(count + 1):
        x, y = (0, depth * (n % 2)) if c.columns else (depth * (n % 2), 0)
        along = round(c.column + c.columns * n / count, 2), round(c.row + c.rows * n / count, 2)
        points.append((along[0] + x, along[1] + y))
    return points


def hatching(x: float, y: float, width: float, height: float) -> str:
    """Return the SVG path of slanted lines in a rectangle.

    An SVG pattern is not used, because it needs an `id` that is unique in the page.

    >>> hatching(0, 0, 7, 7)
    'M0 7L7 0'
    """
    path, reach = [], HATCH_GAP
    # Line n joins the two points of the rectangle's edge where x + y is n * HATCH_GAP; x and y are
    # measured from the upper left corner.
    while reach < width + height:
        low = (reach - min(reach, height), min(reach, height))
        high = (min(reach, width), reach - min(reach, width))
        path.append(f"M{x + low[0]:g} {y + low[1]:g}L{x + high[0]:g} {y + high[1]:g}")
        reach += HATCH_GAP
    return "".join(path)
