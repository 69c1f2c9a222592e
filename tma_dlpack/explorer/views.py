"""What Python sends to the explorer's front end: values, pictures, findings, as plain data."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tma_dlpack import draw
from tma_dlpack.consumer import ldmatrix_addresses
from tma_dlpack.draw.cards import bold, report_parts
from tma_dlpack.draw.figure import Figure, panel_row, svg_panel
from tma_dlpack.explorer.choice import Choice, Look
from tma_dlpack.explorer.legal import menus, planes, ranges
from tma_dlpack.tables.coerce import counted, integer_of
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tensor_map.map import TensorMap

LAST = "the picture shows the last accepted values"
MOST_BOXES = 48  # along one axis, before the picture is cropped around the box

#: tab -> its title.
TABS = {"tensor": "Tensor", "shared": "Shared memory", "copy": "Copy", "banks": "Banks"}
TABS |= {"bytes": "Bytes", "core": "Tensor core", "code": "Code"}
#: What the Banks tab can read the tile with.
ACCESSES = ("column", "row", "ldmatrix")
#: tab -> name, words before each option, options of the menu above its pictures.
MENUS = {"banks": ("access", "read: ", ACCESSES), "core": ("major", "major: ", ("K", "MN"))}


def figures(look: Look, tab: str, options: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Draw a tab of an accepted tile.

    Raises
    ------
    TmaError
        For what cannot be drawn, such as the bytes of a map that has none here.
    """
    tensor_map, coords = look.tensor_map, look.choice.coords
    assert tensor_map is not None  # callers check look.ok first
    taps = look.choice.im2col_offsets or None
    if tab in ("tensor", "shared"):
        memory = draw.shared(tensor_map, coords, im2col_offsets=taps)
        if tab == "shared":
            return (memory,)
        if tensor_map.kind != "tiled":
            return draw.walk(tensor_map, coords, im2col_offsets=taps), memory.brief()
        plane: Any = look.choice.plane or None
        shown = _window(tensor_map, plane, options)
        return draw.tensor(tensor_map, coords, shown=shown, plane=plane), memory.brief()
    if tab == "copy":
        return (draw.copy_motion(tensor_map, coords, im2col_offsets=taps),)
    if tab == "banks":
        access: Any = options.get("access")
        if access == "ldmatrix":
            access = ldmatrix_addresses(tensor_map, 0, 0, num=4)
        elif access != "row":
            access = "column"
        return draw.access_steps(tensor_map, access), draw.bank_conflicts(tensor_map, access)
    if tab == "core":
        return (draw.matrix(tensor_map, major="MN" if options.get("major") == "MN" else "K"),)
    return (draw.fields_of(tensor_map),) if tab == "bytes" else ()


def _window(
    tensor_map: TensorMap, plane: Sequence[int] | None, options: Mapping[str, Any]
) -> dict[int, tuple[int, int]]:
    """Return the window that is dragged in; else the whole tensor with a margin."""
    given = options.get("shown") or {}
    if given:
        return {int(d): (int(first), int(last)) for d, (first, last) in given.items()}
    window = {}
    for d in plane or range(tensor_map.rank)[-2:]:
        box = tensor_map.box_sizes[d]
        if tensor_map.shape[d] <= MOST_BOXES * box:
            window[d] = -(box // 2), tensor_map.shape[d] + box // 2
    return window


def message(look: Look, tab: str, options: Mapping[str, Any], note: str) -> dict[str, Any]:
    """Return what the front end shows of a look; pictures only where the tile is accepted."""
    drawn: tuple[Figure, ...] = ()
    refusal = look.refusal
    try:
        drawn = figures(look, tab, options) if look.ok else ()
    except TmaError as error:
        refusal = str(error)
    scenes = [scene for figure in drawn for scene in figure.scenes()]
    where: dict[str, int] = {}
    if drawn and isinstance(drawn[0], draw.AccessSteps):  # one phase beside the ranked swizzles
        steps, (first, *others) = drawn[0], drawn[1].scenes()
        last = len(steps.phases) - 1
        where = {"phase": min(max(0, integer_of(options.get("phase")) or 0), last), "last": last}
        scenes, drawn = [steps.step(where["phase"]), *[first] * bool(others)], drawn[:1]
    cpp = [["C++", look.tensor_map.cpp()]] if tab == "code" and look.tensor_map else []
    name, words, choices = MENUS.get(tab, ("", "", ()))
    value = options.get(name) if options.get(name) in choices else next(iter(choices), "")
    menu = {"name": name, "words": words, "options": list(choices), "value": value}
    return {
        "tab": tab,
        "menu": menu if name else None,
        "values": values(look.choice),
        "ok": look.ok,
        "state": _state(look),
        "note": note,
        "report": _findings(look),
        "refusal": refusal,
        "fix": _fix(look),
        "title": "; ".join(figure.title for figure in drawn),
        "banks": where,
        "panels": list(map(svg_panel, scenes)),
        "codes": [["Python", look.choice.call()], *cpp],
    }


def _findings(look: Look) -> str:
    has_some = look.report.violations or look.report.advice
    return "".join(report_parts(look.report)) if has_some else ""


def _state(look: Look) -> str:
    """Return one line: accepted, the map refused, or only the tile refused."""
    if not look.report.ok:
        return f"✗ refused: {counted(len(look.report.violations), 'violation')}; {LAST}"
    if look.refusal:
        return f"✗ the map is accepted, this tile is refused; {LAST}"
    return "✓ accepted"


def _fix(look: Look) -> str:
    """Return the text of the button that corrects a refused request; empty if nothing can."""
    if look.report.ok:
        return "move the tile to legal coordinates" if look.refusal else ""
    changes = look.report.changes()
    parts = (f"{name}={getattr(v, 'name', v)}" for name, v in (changes or {}).items())
    return "apply " + ", ".join(parts) if changes is not None else ""


def values(choice: Choice) -> dict[str, Any]:
    """Return the value of each control by its name: ``box_sizes[0]``, ``swizzle``."""
    found: dict[str, Any] = {}
    for name, value in asdict(choice).items():
        if name == "plane":
            found[name] = ", ".join(map(str, value))
        elif isinstance(value, tuple) and name != "allow":
            found |= {f"{name}[{d}]": n for d, n in enumerate(value)}
        elif name not in ("target", "allow", "preparation"):
            found[name] = "" if value is None else value
    return found


def controls(subject: object, choice: Choice) -> list[dict[str, Any]]:
    """Describe the controls: numbers have ends, menus options."""
    found: list[dict[str, Any]] = [
        {"name": name, "least": reach.least, "most": reach.most}
        for name, reach in ranges(subject, choice).items()
    ]
    if len(choice.box_sizes) > 2:
        found.append({"name": "plane", "options": list(planes(choice))})
    if not isinstance(subject, TensorMap):
        found += [{"name": name, "options": list(o)} for name, o in menus(choice).items()]
    return found


def still_html(look: Look, note: str) -> str:
    """Return the state as still pictures: what a saved notebook shows without a kernel."""
    parts = [f"<p>{html.escape(note)}</p>"] if note else []
    findings = _findings(look)  # with its own headline
    parts.append(findings if findings and look.ok else bold(_state(look)) + findings)
    if look.refusal:
        parts.append(f"<p>✗ this tile is refused: {html.escape(look.refusal)}</p>")
    if look.ok:
        drawn = (figures(look, "tensor", {})[0], *figures(look, "shared", {}))
        parts += [bold(figure.title) + panel_row(figure) for figure in drawn]
    code = html.escape(look.stored_code)
    parts.append(f"<details><summary>code</summary><pre>{code}</pre></details>")
    return "".join(parts)
