"""The base class of all figures: SVG, HTML for notebooks, text for terminals.

Plain SVG attributes carry the light colours of a file, so that a viewer that drops style sheets
still shows the picture. The style sheet inside each picture adds the dark ones:
`prefers-color-scheme` of an image follows the colour scheme of its page, and `live.js` replaces
the query by the page's actual background.

The HTML survives sanitisers: each panel is an image that every viewer shows. Where scripts may run,
a script replaces the image by its SVG, with links between the pictures.
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
PHONE_SCALE = 1.2  # of the narrow layout, so that letters are 12 px high
GAP, MARGIN = 12, 8
TITLE_SIZE, TITLE_HEIGHT = 12, 28
BASELINE = 0.93  # from the top of a label's line to its baseline, in font sizes
HATCH_GAP, TOOTH, TOOTH_DEPTH, HEAD = 7, 6, 3, 6  # px: hatching, zigzags, heads of arrows

#: CSS that stops every animation for readers who do not want motion.
STILL = "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
#: The query that `live.js` looks for.
DARK = "@media (prefers-color-scheme:dark)"
TEXT_COLUMNS = 100  # maximum number of characters per line of `text`
ALIKE = 2.5  # largest ratio of the heights of two panels in one row
MAKE_ONE = "pass make_tma_descriptor(x, ...)"

LETTERS = 1.2  # scale of a panel on a page: labels of 10 units become letters of 12 px
ENLARGED = 1.15  # maximum additional scale, on a wide page
# [words](key) in a caption.
_WORD = re.compile(r"\[(.+?)\]\((.+?)\)")
_ROW = "display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start;margin:4px 0"

#: Kind of a played figure -> its script, which follows `play.js`. Other rooms add their kinds.
PLAYERS: dict[str, Path] = {}


@cache
def script_source(*names: str | Path) -> str:
    """Return JavaScript or CSS files (names in this folder, or paths) joined, without comments."""
    text = "\n".join((Path(__file__).parent / n).read_text(encoding="utf-8") for n in names)
    # Block comments that are whole lines, then comments behind code such as `f(x);  // px`.
    # A trailing comment with quotation marks stays: it may be part of a string.
    text = re.sub(r"^ */\*\*.*?\*/$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<=[;,{(}]) +// [^\"'`\n]*$", "", text, flags=re.MULTILINE)
    # Indentation and lines that are only a comment.
    lines = (re.sub(r"^\s*(//.*)?", "", line) for line in text.splitlines())
    return "\n".join(filter(None, lines))


#: Tables and findings inherit the colours of their page. The own two colours, a red and a grey,
#: are legible on white and on black.
CSS = f".tma pre{{font-family:{MONO}}}{script_source('figure.css')}"


class Figure(ABC):
    """The frozen model of a picture. Its attributes are the facts; its methods draw them.

    `str(figure)` is the text for a terminal, at most 100 columns; a notebook shows `html()`.
    """

    __slots__ = ()

    title: str  # one line that describes the figure

    @property
    def sentence(self) -> str:
        """The caption, or ""; its "[words](key)" are highlighted with the cells of the key."""
        return ""

    @abstractmethod
    def scenes(self) -> tuple[Scene, ...]:
        """Lower to panels of cells."""

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Lower to panels for a phone, at most `NARROW` wide; by default the panels of `scenes`."""
        return self.scenes()

    @abstractmethod
    def text(self) -> str:
        """Return the picture as text, at most 100 columns wide."""

    def svg(self, row_width: int = ROW_WIDTH) -> str:
        """Return one SVG document, to write to a file.

        Parameters
        ----------
        row_width : int
            Maximum width in pixels of panels side by side. Up to 400, the panels are those for a
            phone, one below the other.

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
        """Return the HTML without the style sheet, as a part of a `fragment`."""
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
    """Refuse a value that is an instance of none of `kinds`, without calling its methods.

    >>> require("title", 3, (str,), "pass a word")
    Traceback (most recent call last):
    tma_dlpack.TmaPreconditionError: title is of type int; it must be a str
      fix: pass a word
      rule: ARGUMENT
    """
    # isinstance would call __class__ of a hostile value.
    if not issubclass(type(value), kinds):
        names = " or a ".join(kind.__name__ for kind in kinds)
        found = f"{argument} is of type {type(value).__name__}"
        raise argument_error(argument, found, f"be a {names}", fix)


def prose(sentence: str) -> str:
    """Return a sentence as HTML; its marked words are highlighted with the cells they name.

    >>> prose("[Two](is-data)")
    '<p class="tma-prose"><span class="tma-word" tabindex="0" data-k="is-data">Two</span></p>'
    """
    word = r'<span class="tma-word" tabindex="0" data-k="\2">\1</span>'
    said = _WORD.sub(word, html.escape(sentence))
    return f'<p class="tma-prose">{said}</p>' if sentence else ""


def panel_row(figure: Figure) -> str:
    """Return rows of panels, which wrap on a narrow page."""
    wide, narrow = figure.scenes(), figure.narrow_scenes()
    # Keyed by id(), because `side_by_side` regroups the same objects.
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
    """Return a panel as an `<img>` whose source is the SVG; scripts draw the narrow layout.

    Sanitisers (of an untrusted notebook, of a code host) remove SVG elements, scripts and style
    sheets, but keep the image. Panels of one row grow by the same factor, up to `ENLARGED` times
    their width; they wrap before they shrink, so that letters keep their size.
    """
    data = base64.b64encode(svg_panel(scene).encode()).decode()
    other = ""
    if narrow is not None and narrow != scene:
        # mtime=0: equal pictures have equal bytes.
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
    """Return a figure of one panel with the data of `play.js`: pictures and frames to select.

    Without scripts it shows `still` (by default the figure's first panel), then the HTML `beside`.
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
    """Join figures and parts of finished HTML; elements with one key are highlighted together.

    A string is HTML in which the caller has escaped all text.
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

#: A style's class and attributes, without colours.
CLASSED: Look = {
    name: f' class="t-{name}"' + f" {style.attributes}" * bool(style.attributes)
    for name, style in STYLES.items()
}
#: The same and the light colours, for viewers without style sheets.
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
    """Return scenes as one SVG document, in rows of at most `row_width` px, below a sentence."""
    placed: list[str] = []
    x, y, row_height = float(MARGIN), float(TITLE_HEIGHT), 0.0
    width = text_width(title, TITLE_SIZE) + MARGIN
    columns = NARROW_COLUMNS if row_width <= PHONE_WIDTH else NOTE_COLUMNS
    for line in textwrap.wrap(sentence, columns):
        placed.append(_cell(words(MARGIN, y - 6, line, "label", LINE), COLOURED))
        y, width = y + LINE, max(width, text_width(line) + MARGIN)
    for row in side_by_side(scenes):
        for n, scene in enumerate(row):
            # Each row of similar panels begins a new line, and so does a panel that does not fit.
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
    """Return an SVG document with the styles that `scenes` use, in the order of the table.

    A panel has no `title`, because browsers would show it as a tooltip everywhere. Its page names
    it: by `alt` of the image, then by `linked.js`.
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
    """Draw the background and the cells; neighbours with the same `css` form one group."""
    paper = Cell(0.5, 0.5, "paper", columns=scene.width - 1, rows=scene.height - 1)
    parts = [_cell(paper, look)]
    for css, cells in groupby(scene.items, attrgetter("css")):
        drawn = "".join([_cell(cell, look) for cell in cells])
        parts.append(f'<g style="{html.escape(css)}">{drawn}</g>' if css else drawn)
    return "".join(parts)


def _cell(c: Cell, look: Look) -> str:
    if c.style in WORDS:
        # 3.5 px below the middle is the baseline of a 10 px font.
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
    """Return the points of a line: with teeth for a zigzag, with a head for a vertical arrow."""
    if c.style == "arrow":
        x, end, back = c.column, c.row + c.rows, -HEAD if c.rows > 0 else HEAD
        tip = (x - HEAD / 2, end + back), (x, end), (x + HEAD / 2, end + back), (x, end)
        return [(x, c.row), (x, end), *tip]
    if c.style != "zigzag":
        return [(c.column, c.row), (c.column + c.columns, c.row + c.rows)]
    # An even number of half teeth, so that both ends are on the line.
    count = max(2, round((c.columns + c.rows) / TOOTH / 2) * 2)
    # Positive: the teeth point right or down.
    depth = TOOTH_DEPTH if c.anchor == "start" else -TOOTH_DEPTH
    points = []
    for n in range(count + 1):
        x, y = (0, depth * (n % 2)) if c.columns else (depth * (n % 2), 0)
        along = round(c.column + c.columns * n / count, 2), round(c.row + c.rows * n / count, 2)
        points.append((along[0] + x, along[1] + y))
    return points


def hatching(x: float, y: float, width: float, height: float) -> str:
    """Return the path of slanted lines in a rectangle. A pattern would need an `id` per page.

    >>> hatching(0, 0, 7, 7)
    'M0 7L7 0'
    """
    path, reach = [], HATCH_GAP
    # Line number n joins the points whose x + y is n * HATCH_GAP on the rectangle's edge.
    while reach < width + height:
        low = (reach - min(reach, height), min(reach, height))
        high = (min(reach, width), reach - min(reach, width))
        path.append(f"M{x + low[0]:g} {y + low[1]:g}L{x + high[0]:g} {y + high[1]:g}")
        reach += HATCH_GAP
    return "".join(path)
