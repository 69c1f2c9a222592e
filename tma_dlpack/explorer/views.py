"""What Python sends to the explorer's front end: values, pictures, findings, as plain data."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tma_dlpack import draw
from tma_dlpack.consumer import ldmatrix_addresses
from tma_dlpack.draw.cards import report_parts
from tma_dlpack.draw.figure import Figure
from tma_dlpack.draw.grid import Scene
from tma_dlpack.draw.figure import panel_row
from tma_dlpack.draw.svg import svg_panel
from tma_dlpack.explorer.choice import Choice, Look
from tma_dlpack.explorer.legal import Range, field_of, menus
from tma_dlpack.tables.coerce import counted, integer_of
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tensor_map.map import TensorMap

LAST = "the picture shows the last accepted values"
MOST_BOXES = 48  # along one axis, before the picture is cropped around the box

#: tab -> its title.
TABS = {
    "tensor": "Tensor",
    "shared": "Shared memory",
    "copy": "Copy",
    "banks": "Banks",
    "bytes": "Bytes",
    "core": "Tensor core",
    "code": "Code",
}
#: What the Banks tab can read the tile with.
ACCESSES = ("column", "row", "ldmatrix")
_GROUPS = {
    "coords": "Tile: coords",
    "im2col_offsets": "Filter tap: im2col_offsets",
    "box_sizes": "Box: box_sizes",
    "channels_per_pixel": "Column",
    "pixels_per_column": "Column",
    "pixel_box_lower_corner": "Bounding box",
    "pixel_box_upper_corner": "Bounding box",
    "elem_strides": "Traversal: elem_strides",
}


def figures(look: Look, tab: str, options: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Draw a tab of an accepted tile.

    Raises
    ------
    TmaError
        For what cannot be drawn, such as the bytes of a map that has none here.
    """
    tensor_map, choice = look.tensor_map, look.choice
    assert tensor_map is not None  # callers ask look.ok first
    taps = choice.im2col_offsets or None
    if tab in ("tensor", "shared"):
        memory = draw.shared(tensor_map, choice.coords, im2col_offsets=taps)
        if tab == "shared":
            return (memory,)
        if tensor_map.kind != "tiled":
            return draw.walk(tensor_map, choice.coords, im2col_offsets=taps), memory.brief()
        window = _shown(tensor_map, options)
        return draw.tensor(tensor_map, choice.coords, shown=window), memory.brief()
    if tab == "copy":
        return (draw.copy_motion(tensor_map, choice.coords, im2col_offsets=taps),)
    if tab == "banks":
        return (draw.access_steps(tensor_map, _access(tensor_map, options)),)
    if tab == "core":
        major = "MN" if options.get("major") == "MN" else "K"
        return (draw.matrix(tensor_map, major=major),)
    return (draw.fields_of(tensor_map),) if tab == "bytes" else ()


def _shown(tensor_map: TensorMap, options: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """Give the window that is dragged in; else the whole tensor with a margin."""
    given = options.get("shown") or {}
    if given:
        return {int(d): (int(first), int(last)) for d, (first, last) in given.items()}
    sides = list(zip(tensor_map.shape, tensor_map.box_sizes, strict=True))[-2:]
    first_dim = tensor_map.rank - len(sides)
    return {
        first_dim + n: (-(box // 2), extent + box // 2)
        for n, (extent, box) in enumerate(sides)
        if extent <= MOST_BOXES * box
    }


def _access(tensor_map: TensorMap, options: Mapping[str, Any]) -> Any:
    """Give the access that is stepped through: a pattern, or the addresses of an ldmatrix.x4."""
    if options.get("access") == "ldmatrix":
        return ldmatrix_addresses(tensor_map, 0, 0, num=4)
    return "row" if options.get("access") == "row" else "column"


def bank_scenes(
    look: Look, options: Mapping[str, Any]
) -> tuple[tuple[Scene, ...], str, dict[str, int]]:
    """Give one phase of the access beside the ranked swizzles, its title, and where the step is."""
    (steps,) = figures(look, "banks", options)
    assert isinstance(steps, draw.AccessSteps)
    assert look.tensor_map is not None
    ranked = draw.bank_conflicts(look.tensor_map, _access(look.tensor_map, options)).scenes()
    last = len(steps.phases) - 1
    phase = min(max(0, integer_of(options.get("phase")) or 0), last)
    first = ranked[:1] if len(ranked) > 1 else ()
    return (steps.step(phase), *first), steps.title, {"phase": phase, "last": last}


def message(look: Look, tab: str, options: Mapping[str, Any], note: str) -> dict[str, Any]:
    """Give what the front end shows of a look; pictures only where the tile is accepted."""
    panels: list[str] = []
    titles: list[str] = []
    refusal = look.refusal
    where: dict[str, int] = {}
    if look.ok:
        try:
            if tab == "banks":
                scenes, title, where = bank_scenes(look, options)
                panels, titles = list(map(svg_panel, scenes)), [title]
            else:
                for figure in figures(look, tab, options):
                    panels += map(svg_panel, figure.scenes())
                    titles.append(figure.title)
        except TmaError as error:
            refusal = str(error)
    changes = None if look.report.ok else look.report.changes()
    return {
        "tab": tab,
        "values": values(look.choice),
        "ok": look.ok,
        "state": _state(look),
        "note": note,
        "report": "".join(report_parts(look.report)) if _has_findings(look) else "",
        "refusal": refusal,
        "fix": _fix(look, changes),
        "title": "; ".join(titles),
        "banks": where,
        "panels": panels,
        "code": look.code if tab == "code" and look.tensor_map is not None else look.choice.call(),
    }


def _has_findings(look: Look) -> bool:
    return bool(look.report.violations or look.report.advice)


def _state(look: Look) -> str:
    """Give one line: accepted, the map refused, or only the tile refused."""
    if not look.report.ok:
        return f"✗ refused: {counted(len(look.report.violations), 'violation')}; {LAST}"
    if look.refusal:
        return f"✗ the map is accepted, this tile is refused; {LAST}"
    return "✓ accepted"


def _fix(look: Look, changes: Mapping[str, Any] | None) -> str:
    """Give the text of the button that corrects a refused request; empty if nothing can."""
    if look.report.ok:
        return "move the tile to legal coordinates" if look.refusal else ""
    if changes is None:
        return ""
    said = (f"{name}={getattr(value, 'name', value)}" for name, value in changes.items())
    return "apply " + ", ".join(said)


def values(choice: Choice) -> dict[str, Any]:
    """Give the value of each control by its name: ``box_sizes[0]``, ``swizzle``."""
    found: dict[str, Any] = {}
    for name, value in asdict(choice).items():
        if name in ("target", "allow"):
            continue
        if isinstance(value, tuple):
            found |= {f"{name}[{d}]": n for d, n in enumerate(value)}
        else:
            found[name] = value if value is not None else ""
    return found


def controls(subject: object, choice: Choice, reach: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Describe the controls, group by group: numbers first, then the menus."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, limits in reach.items():
        group = groups.setdefault(_GROUPS[field_of(name)], [])
        group.append({"name": name, "least": limits.least, "most": limits.most})
    numbers = [{"title": title, "numbers": items, "menus": []} for title, items in groups.items()]
    if isinstance(subject, TensorMap):
        return numbers
    options = menus(choice)
    items = [{"name": name, "options": list(options[name])} for name in options]
    return [*numbers, {"title": "Options", "numbers": [], "menus": items}]


def still_html(look: Look, note: str) -> str:
    """Give the state as still pictures: what a saved notebook shows without a kernel."""
    parts = [f"<p>{html.escape(note)}</p>"] if note else []
    parts.append(f"<div><b>{html.escape(_state(look))}</b></div>")
    if _has_findings(look):
        parts.append("".join(report_parts(look.report)))
    if look.refusal:
        parts.append(f"<p>✗ this tile is refused: {html.escape(look.refusal)}</p>")
    if look.ok:
        tensor, *_ = figures(look, "tensor", {})
        drawn = (tensor, *figures(look, "shared", {}))
        parts += [f"<div><b>{html.escape(f.title)}</b></div>{panel_row(f)}" for f in drawn]
    code = html.escape(look.code)
    parts.append(f"<details><summary>code</summary><pre>{code}</pre></details>")
    return "".join(parts)
