"""Scenes as SVG text: the one place that writes tags, and escapes every label."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence

from tma_dlpack.draw.scene import (
    LABEL_SIZE,
    LINE_HEIGHT,
    Box,
    Group,
    Item,
    Line,
    Scene,
    Text,
    fitted,
    hatching,
    text_width,
)
from tma_dlpack.draw.theme import MONO, STYLES, style_sheet

ROW_WIDTH = 1240  # panels stand side by side up to here, px
GAP, MARGIN = 12, 8
TITLE_SIZE, TITLE_HEIGHT = 12, 28
BASELINE = 0.93  # of a label, from the top of its line, in font sizes

Look = Callable[[str], str]  # style -> attributes


def svg_panel(scene: Scene) -> str:
    """Give one scene as an SVG document whose style sheet carries all colours."""
    body = f"<style>{_sheet((scene,))}</style>{_drawn(scene, _classed)}"
    return _element(scene.width, scene.height, scene.about, body, scene.data)


def _sheet(scenes: Sequence[Scene]) -> str:
    """Give the styles that are used, in the order of the table."""
    used = {"paper", "strong", "label", "hatch"}
    used |= {item.style for scene in scenes for item in _flat(scene.items)}
    return style_sheet(name for name in STYLES if name in used) + "".join(s.css for s in scenes)


def _flat(items: Iterable[Item]) -> Iterator[Box | Text | Line]:
    for item in items:
        if isinstance(item, Group):
            yield from item.items
        else:
            yield item


def svg_file(title: str, scenes: Sequence[Scene], row_width: int = ROW_WIDTH) -> str:
    """Give scenes as one SVG document with its style sheet: side by side up to `row_width` px."""
    placed: list[str] = []
    x, y, row_height = float(MARGIN), float(TITLE_HEIGHT), 0.0
    width = text_width(title, TITLE_SIZE) + MARGIN
    for scene in scenes:
        if placed and x + scene.width > row_width:
            x, y, row_height = float(MARGIN), y + row_height + GAP, 0.0
        placed.append(f'<g transform="translate({x:g} {y:g})">{_drawn(scene, _look)}</g>')
        x += scene.width + GAP
        width, row_height = max(width, x - GAP), max(row_height, scene.height)
    width, height = width + MARGIN, y + row_height + MARGIN
    paper = f'<rect width="{width:g}" height="{height:g}"{_look("paper")}/>'
    heading = (
        f'<text x="{MARGIN}" y="19" font-size="{TITLE_SIZE}"{_look("strong")}>'
        f"{html.escape(title)}</text>"
    )
    about = "; ".join([title, *(scene.about for scene in scenes)])
    body = f"<style>{_sheet(scenes)}</style>{paper}{heading}{''.join(placed)}"
    return _element(width, height, about, body)


def _element(
    width: float, height: float, about: str, body: str, data: Sequence[tuple[str, str]] = ()
) -> str:
    attributes = "".join(f' data-{name}="{html.escape(value)}"' for name, value in data)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" font-family="{html.escape(MONO)}" '
        f'font-size="{LABEL_SIZE}" style="max-width:100%;height:auto"{attributes}>'
        f"<desc>{html.escape(about)}</desc>{body}</svg>"
    )


def _drawn(scene: Scene, look: Look) -> str:
    paper = Box(0.5, 0.5, scene.width - 1, scene.height - 1, "paper")
    return "".join(_item(item, look) for item in (paper, *scene.items))


def _item(item: Item, look: Look) -> str:
    if isinstance(item, Box):
        return _box(item, look)
    if isinstance(item, Text):
        anchor = "" if item.anchor == "start" else f' text-anchor="{item.anchor}"'
        return (
            f'<text x="{item.x:g}" y="{item.y:g}"{anchor}{look(item.style)}>'
            f"{html.escape(item.text)}</text>"
        )
    if isinstance(item, Group):
        inner = "".join(_item(one, look) for one in item.items)
        return f'<g style="{html.escape(item.css)}">{inner}</g>'
    points = " ".join(f"{x:g},{y:g}" for x, y in item.points)
    return f'<polyline points="{points}"{look(item.style)}/>'


def _box(box: Box, look: Look) -> str:
    rect = (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
        f"{look(box.style)}"
    )
    parts = [f"{rect}{_links(box)}/>"]
    if box.title:
        parts.insert(0, f"<title>{html.escape(box.title)}</title>")
    if box.hatched:
        path = hatching(box.x, box.y, box.width, box.height)
        parts.append(f'<path d="{path}"{look("hatch")}/>')
    if box.lines:
        parts.extend(_centred(box, look))
    return f"<g>{''.join(parts)}</g>" if len(parts) > 1 else parts[0]


def _links(box: Box) -> str:
    key = f' data-k="{html.escape(box.key)}"' * bool(box.key)
    return key + f' data-to="{html.escape(" ".join(box.to))}"' * bool(box.to)


def _centred(box: Box, look: Look) -> list[str]:
    lines, size = fitted(box.lines, box.width - 3, box.height - 2)
    pitch = size * LINE_HEIGHT
    x = box.x + box.width / 2
    top = box.y + (box.height - pitch * len(lines)) / 2
    smaller = "" if size == LABEL_SIZE else f' font-size="{size:.3g}"'
    attributes = f'text-anchor="middle"{smaller}{look("label")}'
    baseline = top + BASELINE * size
    return [
        f'<text x="{x:g}" y="{baseline + pitch * n:.4g}" {attributes}>{html.escape(line)}</text>'
        for n, line in enumerate(lines)
    ]


def _classed(name: str) -> str:
    """Give an item's class and what is no colour."""
    attributes = STYLES[name].attributes
    return f' class="t-{name}"' + f" {attributes}" * bool(attributes)


def _look(name: str) -> str:
    """Give an item's class, and the light colours for viewers without style sheets."""
    style = STYLES[name]
    stroke = "" if style.stroke[0] == "none" else f' stroke="{style.stroke[0]}"'
    attributes = f" {style.attributes}" if style.attributes else ""
    return f' class="t-{name}" fill="{style.fill[0]}"{stroke}{attributes}'
