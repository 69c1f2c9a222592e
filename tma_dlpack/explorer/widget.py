"""`explore`: change a request by sliders and menus, and see map, pictures, code or refusal follow.

`look` is the pure part: a tensor and a `Choice` give what is shown. The widgets only call it. They
need ipywidgets (extra `notebook`); without, the first look is shown, with a hint.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw.boxes import tensor as draw_tensor
from tma_dlpack.draw.cards import report_parts
from tma_dlpack.draw.figure import Figure, fragment
from tma_dlpack.draw.memory import shared
from tma_dlpack.make.tiled import check_tma_descriptor, make_tma_descriptor
from tma_dlpack.rules.report import Report
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.types.errors import TmaError
from tma_dlpack.types.limits import MAX_BOX, MAX_ELEM_STRIDE
from tma_dlpack.types.opaque import opaque

__all__ = ["Choice", "Explorer", "Look", "Still", "explore", "first_choice", "look"]

HINT = "install ipywidgets for sliders and menus: pip install 'tma_dlpack[notebook]'"
ROW_BYTES, ROWS = 128, 8  # of the first box
AROUND = 64  # positions before and after the tensor that coordinates reach


@dataclass(frozen=True, slots=True)
class Choice:
    """One request: the arguments of `make_tma_descriptor`, and the tile to show.

    All tuples are row-major, as there.
    """

    box_sizes: tuple[int, ...]
    elem_strides: tuple[int, ...]
    interleave_layout: str = "none"
    swizzle: str = "none"
    l2_fetch_size: str = "none"
    oobfill: str = "none"
    data_type: str | None = None
    rules: str = "libcu++"
    coords: tuple[int, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Give the keyword arguments of `make_tma_descriptor`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "coords"}

    def changed(self, arguments: Mapping[str, Any]) -> Choice:
        """Take over what a repair says, enum members by their names."""
        known = {
            name: getattr(value, "name", value)
            for name, value in arguments.items()
            if name in self.arguments() and value is not None
        }
        return replace(self, **known)


@dataclass(frozen=True, slots=True)
class Look:
    """What a choice gives.

    Attributes
    ----------
    choice : Choice
    report : Report
    tensor_map : TensorMap or None
        None where the request is refused.
    refusal : str
        Why the tile cannot be shown although the map is accepted; empty where it can.
    figures : tuple of Figure
    code : str
        Python for the call, and C++ for the map where it is accepted.
    """

    choice: Choice
    report: Report
    tensor_map: TensorMap | None
    refusal: str
    figures: tuple[Figure, ...]
    code: str

    def html(self) -> str:
        """Give everything as one HTML fragment."""
        parts: list[Figure | str] = [*report_parts(self.report)]
        if self.refusal:
            parts.append(f"<p>✗ this tile is refused: {html.escape(self.refusal)}</p>")
        parts += self.figures
        parts.append(
            f"<details open><summary>code</summary><pre>{html.escape(self.code)}</pre></details>"
        )
        return fragment(parts)

    def text(self) -> str:
        """Say the same in characters."""
        parts = [str(self.report), self.refusal, *map(str, self.figures), self.code]
        return "\n\n".join(filter(None, parts))


def look(tensor: object, choice: Choice) -> Look:
    """Give what a choice makes of a tensor; a refusal is part of the answer.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((64, 64), np.float16)
    >>> look(x, Choice((8, 63), (1, 1))).report.violations[0].rule
    'BOX_INNER_16B'
    """
    report = check_tma_descriptor(tensor, **choice.arguments())
    call = _call(choice)
    if not report.ok:
        return Look(choice, report, None, "", (), call)
    tensor_map = make_tma_descriptor(tensor, **choice.arguments())
    figures: tuple[Figure, ...] = ()
    refusal = ""
    try:
        figures = draw_tensor(tensor_map, choice.coords), shared(tensor_map, choice.coords)
    except TmaError as error:
        refusal = str(error)
    return Look(choice, report, tensor_map, refusal, figures, f"{call}\n\n{tensor_map.cpp()}")


def _call(choice: Choice) -> str:
    """Give the Python call, without the arguments that are as they would be anyway."""
    given = choice.arguments()
    plain = Choice(choice.box_sizes, (1,) * len(choice.elem_strides)).arguments()
    said = [f"box_sizes={given.pop('box_sizes')}"]
    said += [f"{name}={value!r}" for name, value in given.items() if value != plain[name]]
    return (
        f"tm = tma.make_tma_descriptor(tensor, {', '.join(said)})\n"
        f"tile = tma.load_tile(tm, {choice.coords})"
    )


def first_choice(tensor: object) -> Choice:
    """Give a request to begin with: rows of 128 bytes, 8 of them, swizzled where that fits.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> choice = first_choice(np.zeros((64, 256), np.float16))
    >>> choice.box_sizes, choice.swizzle
    ((8, 64), 'bytes128')
    """
    view = as_tensor_view(tensor)
    rank = len(view.shape)
    columns = max(1, ROW_BYTES * 8 // view.dtype.itemsize_bits)
    limits = ((1,) * rank + (ROWS, columns))[-rank:] if rank else ()
    box = tuple(min(n, limit) for n, limit in zip(view.shape, limits, strict=True))
    choice = Choice(box, (1,) * rank, swizzle="bytes128", coords=(0,) * rank)
    fixed = check_tma_descriptor(tensor, **choice.arguments()).fixed()
    return choice if fixed is None else choice.changed(fixed)


@opaque
def explore(tensor: object) -> Explorer | Still:
    """Explore the tensor maps of a tensor with sliders and menus, in a notebook.

    The report, the pictures and the generated code follow each change. A choice that is refused
    shows why, and a button that applies `Report.fixed`.

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__``; its data is not read.

    Returns
    -------
    Explorer
        With `look` (the current one) and `tensor_map`; or, without ipywidgets, a `Still` of the
        first look with a hint.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> explore(np.zeros((64, 256), np.float16)).tensor_map.box_sizes
    (8, 64)
    """
    choice = first_choice(tensor)
    try:
        import ipywidgets
    except ImportError:
        return Still(look(tensor, choice))
    return Explorer(tensor, choice, ipywidgets)


@dataclass(frozen=True, slots=True)
class Still:
    """What `explore` shows where ipywidgets is not installed."""

    look: Look

    @property
    def tensor_map(self) -> TensorMap | None:
        """The map of the first choice."""
        return self.look.tensor_map

    def __str__(self) -> str:
        return f"{HINT}\n\n{self.look.text()}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(HINT)}</p>{self.look.html()}"


class Explorer:
    """Sliders and menus around a `look`.

    Attributes
    ----------
    look : Look
        Of the current choice.
    controls : dict
        The widgets by name: ``box_sizes[0]``, ``elem_strides[0]``, ``coords[0]``, ``swizzle``...
    fix : Button
        Applies `Report.fixed`; hidden where there is nothing to mend.
    """

    def __init__(self, tensor: object, choice: Choice, widgets: Any) -> None:
        self._tensor = tensor
        self._shape = as_tensor_view(tensor).shape
        self._following = True
        self.controls = _controls(choice, self._shape, widgets)
        self.fix = widgets.Button(description="apply report.fixed()", button_style="warning")
        self.fix.on_click(lambda button: self._apply_fix())
        self._shown = widgets.HTML()
        groups = [
            widgets.VBox([c for name, c in self.controls.items() if name.startswith(start)])
            for start in ("box_sizes", "elem_strides", "coords")
        ]
        menus = [c for name, c in self.controls.items() if "[" not in name]
        self.widget = widgets.VBox(
            [
                widgets.HBox([*groups, widgets.VBox(menus)], layout={"flex_flow": "row wrap"}),
                self.fix,
                self._shown,
            ]
        )
        for control in self.controls.values():
            control.observe(lambda change: self._follow(), names="value")
        self._follow()

    @property
    def tensor_map(self) -> TensorMap | None:
        """The map of the current choice; None where it is refused."""
        return self.look.tensor_map

    def _follow(self) -> None:
        """Look at what the controls say, and show it."""
        if not self._following:
            return
        self.look = look(self._tensor, _read(self.controls, len(self._shape)))
        mendable = not self.look.report.ok and self.look.report.fixed() is not None
        self.fix.layout.display = "" if mendable else "none"
        self._shown.value = self.look.html()

    def _apply_fix(self) -> None:
        fixed = self.look.report.fixed()
        if fixed is not None:
            self._set(self.look.choice.changed(fixed))

    def _set(self, choice: Choice) -> None:
        """Move all controls, and look once."""
        self._following = False
        for name, value in _values(choice).items():
            self.controls[name].value = value
        self._following = True
        self._follow()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        live: dict[str, Any] = self.widget._repr_mimebundle_(**options)
        return {**live, "text/html": self.look.html(), "text/plain": self.look.text()}


def _controls(choice: Choice, shape: tuple[int, ...], widgets: Any) -> dict[str, Any]:
    values = _values(choice)
    limits: dict[str, tuple[int, int]] = {}
    for d, extent in enumerate(shape):
        limits[f"box_sizes[{d}]"] = 1, MAX_BOX
        limits[f"elem_strides[{d}]"] = 1, MAX_ELEM_STRIDE
        limits[f"coords[{d}]"] = -AROUND, extent + AROUND
    sliders = {
        name: widgets.IntSlider(
            value=values[name], min=least, max=most, description=name, continuous_update=False
        )
        for name, (least, most) in limits.items()
    }
    return sliders | {
        name: widgets.Dropdown(options=options, value=values[name], description=name)
        for name, options in _MENUS.items()
    }


_MENUS: dict[str, list[Any]] = {
    "interleave_layout": TmaInterleaveLayout._member_names_,
    "swizzle": TmaSwizzle._member_names_,
    "l2_fetch_size": TmaL2FetchSize._member_names_,
    "oobfill": TmaOobFill._member_names_,
    "data_type": [("of the tensor", None), *((t.name, t.name) for t in TensorMapDataType)],
    "rules": ["libcu++", "driver"],
}
_SLIDERS = ("box_sizes", "elem_strides", "coords")


def _values(choice: Choice) -> dict[str, Any]:
    """Give the value of each control."""
    numbers = {
        f"{name}[{d}]": value for name in _SLIDERS for d, value in enumerate(getattr(choice, name))
    }
    return numbers | {name: getattr(choice, name) for name in _MENUS}


def _read(controls: Mapping[str, Any], rank: int) -> Choice:
    numbers = {
        name: tuple(controls[f"{name}[{d}]"].value for d in range(rank)) for name in _SLIDERS
    }
    words = {name: controls[name].value for name in _MENUS}
    return Choice(**{**numbers, **words})
