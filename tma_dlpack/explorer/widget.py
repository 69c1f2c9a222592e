"""`explore`: set the arguments by sliders, menus and dragging the box, and see the map change.

`Explorer` has the state and answers in plain data; `Panel` shows it with anywidget: state goes over
as messages, the last also as a trait. Without anywidget the first look is shown as still pictures.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import itertools
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tma_dlpack.draw.figure import CSS, fragment, script_source
from tma_dlpack.explorer.choice import Choice, choice_of, first_choice, look, padded
from tma_dlpack.explorer.legal import (
    is_of_tile,
    legal_options,
    legal_ranges,
    menus,
    planes,
    ranges,
)
from tma_dlpack.explorer.page import embedded, page, state_of
from tma_dlpack.explorer.views import TABS, controls, message, still_html
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import integer_of, integers_of, shown, text_of
from tma_dlpack.tables.enums import Tensor
from tma_dlpack.tables.errors import TmaError, refusal
from tma_dlpack.tensor_map.map import TensorMap

if TYPE_CHECKING:
    from tma_dlpack.tables.targets import Target

HERE = Path(__file__).parent
LIVE_TEXT = "The explorer is live as long as its kernel runs; its last picture follows."
HINT = "install anywidget for the live explorer: pip install anywidget"


@opaque
def explore(tensor: Tensor, *, target: Target | str | None = None) -> Explorer:
    """Explore the tensor maps of a tensor, in a notebook.

    Controls on the left, pictures on the right, under the tabs Tensor, Shared memory, Copy
    (animated), Banks (an access, phase by phase), Bytes, Tensor core and Code. Drag the box on the
    tensor, or its lower right corner: it snaps to legal values. Refused values are shaded on the
    sliders, with the reason. If a typed value is refused, the last accepted picture stays,
    greyed, and a button corrects the request.

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__`` (its data is not read), or a `TensorMap`, im2col maps included.
        A map that has its tensor can be changed; of another, only the tile.
    target : Target or str, optional
        As in `make_tma_descriptor`.

    Returns
    -------
    Explorer
        With `look`, `tensor_map` and `code`; `set` changes it from Python, and `save` writes it as
        an HTML file that needs no Python.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> explorer = explore(np.zeros((64, 256), np.float16))
    >>> explorer.tensor_map.box_sizes
    (8, 64)
    >>> explorer.set(box_sizes=(16, 64), coords=(8, 64))
    >>> print(explorer.code.splitlines()[0])
    tm = tma.make_tma_descriptor(tensor, box_sizes=(16, 64), swizzle='bytes128')
    """
    if isinstance(tensor, TensorMap):
        return _explore_map(tensor)
    name = getattr(target, "name", target)
    choice = first_choice(tensor, text_of(name) if name is not None else None)
    first = look(tensor, choice)
    other = padded(tensor) if not first.report.ok else None
    if other is None:
        return Explorer(tensor, choice)
    why, (zeros, preparation) = first.report.violations[0], other
    note = (
        f"Your tensor itself is refused ({why.rule}): {why.found}. Fix: {why.fix}. The explorer "
        "shows instead a tensor of the same shape whose rows are padded to 16 bytes; the code pads "
        "yours."
    )
    choice = replace(first_choice(zeros, choice.target), preparation=preparation)
    return Explorer(zeros, choice, note)


def _explore_map(tensor_map: TensorMap) -> Explorer:
    choice, tensor = choice_of(tensor_map), tensor_map.tensor
    can_be_made = tensor is not None and tensor_map.kind != "im2col_wide"
    if can_be_made and look(tensor, choice).tensor_map == tensor_map:
        return Explorer(tensor, choice)
    note = "This map has no tensor that could be described anew: only the tile can be chosen."
    return Explorer(tensor_map, choice, note)


class Explorer:
    """The arguments of a map that can be changed, and the map and figures that result.

    Attributes
    ----------
    look : Look
        Of the current choice.
    note : str
        What is special about what is explored, such as a tensor shown in place of a refused one.
    """

    def __init__(self, subject: object, choice: Choice, note: str = "") -> None:
        self._subject = subject
        self._panel: Panel | None = None
        self.note = note
        self.look = look(subject, choice)
        self._accepted = self.look if self.look.ok else None

    @property
    def choice(self) -> Choice:
        """The current arguments and coordinates."""
        return self.look.choice

    @property
    def tensor_map(self) -> TensorMap | None:
        """The map of the current choice; None where it is refused, or is not of your tensor."""
        return None if self.choice.preparation else self.look.tensor_map

    @property
    def code(self) -> str:
        """Python for the call, and C++ for the map where it is accepted."""
        return self.look.code

    def set(self, **values: Any) -> None:
        """Change values: names of `Choice`, row-major tuples or words.

        Raises
        ------
        TmaPreconditionError
            For another name, and where `plane` is not two dimensions in their order. What a map
            refuses is no error: `look.report` has the reason.
        """
        known = [name for name in Choice.__slots__ if name not in ("target", "preparation")]
        for name in values:
            if name not in known:
                found, must = f"the explorer has no {shown(name)}", f"be one of {', '.join(known)}"
                raise refusal(name, found, must, "use one of these names")
        allowed = list(planes(self.choice).values())
        if "plane" in values and integers_of(values["plane"]) not in allowed:
            found, must = f"plane is {shown(values['plane'])}", f"be one of {allowed}"
            raise refusal("plane", found, must, "use one of these; () is the inner two")
        self._turn(replace(self.choice, **{name: _plain(v) for name, v in values.items()}))
        if self._panel is not None:
            self._panel.send(self.answer({}))

    def _turn(self, choice: Choice) -> None:
        self.look = look(self._subject, choice)
        if self.look.ok:
            self._accepted = self.look

    # --- Requests of the front end ----------------------------------------------------------------

    def hear(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Serve a request of the front end; return the answer that it shows.

        ``{"do": "choose", "values": {"coords[0]": 8}}``, ``"fix"``, ``"undo"``, or ``"legal"`` for
        what the controls could be set to. Values that are no integers or options are ignored.
        """
        do = asked.get("do")
        if do == "choose":
            self._turn(self._chosen(asked.get("values") or {}))
        elif do == "fix":
            self._turn(self._fixed())
        elif do == "undo" and self._accepted is not None:
            self._turn(self._accepted.choice)
        if do == "page":
            return {"page": page(self._page_state()), "seq": asked.get("seq", 0)}
        answer = self.legal() if do == "legal" else self.answer(asked)
        return {**answer, "seq": asked.get("seq", 0)}

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return values, findings and the pictures of one tab."""
        tab = asked.get("tab")
        return message(self.look, tab if tab in TABS else "tensor", asked, self.note)

    def legal(self) -> dict[str, Any]:
        """Return what each control could be set to, the others staying as last accepted."""
        at = self._accepted or self.look
        found = legal_ranges(self._subject, at.choice, at.tensor_map)
        legal = {name: asdict(reach) for name, reach in found.items()}
        return {"legal": legal, "options": legal_options(self._subject, at.choice)}

    def controls(self) -> list[dict[str, Any]]:
        """Describe the controls for the front end."""
        return controls(self._subject, self.choice)

    def _chosen(self, values: Mapping[str, Any]) -> Choice:
        choice, reach = self.choice, ranges(self._subject, self.choice)
        for name, value in values.items():
            number = integer_of(value)
            if name in reach and number is not None:
                choice = choice.put(name, number)
            elif name == "plane" and text_of(value) in planes(choice):
                choice = choice.put(name, planes(choice)[value])
            elif name in menus(choice) and text_of(value) is not None:
                choice = choice.put(name, value or None)
        return choice

    def _fixed(self) -> Choice:
        """Return the choice as `Report.fixed` corrects it, or with legal coordinates."""
        choice = self.choice
        if not self.look.report.ok:
            fixed = self.look.report.fixed()
            return choice if fixed is None else choice.changed(fixed)
        found = legal_ranges(self._subject, choice, self.look.tensor_map)
        for name, reach in found.items():
            if is_of_tile(name):
                choice = choice.put(name, reach.nearest(choice.number(name)))
        return choice

    # --- As a file ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explorer as one HTML file, which needs no Python, no kernel and no network.

        It opens in the current state. Everything can be changed in it, the tensor's shape, strides
        and type too; the state stands in its address, to be sent to somebody.

        Parameters
        ----------
        path : str or os.PathLike

        Raises
        ------
        TmaUnsupportedError
            For an im2col-wide map, and for a map of a packed type alone, without its tensor.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "explorer.html"
        >>> explore(np.zeros((64, 256), np.float16)).save(path)
        >>> path.read_text(encoding="utf-8")[:15]
        '<!doctype html>'
        """
        Path(path).write_text(page(self._page_state()), encoding="utf-8")

    def _page_state(self) -> dict[str, Any]:
        return state_of(self._subject, self.choice)

    # --- In a notebook ----------------------------------------------------------------------------

    @property
    def panel(self) -> Panel | None:
        """The live widget, made on first use; None without anywidget."""
        if self._panel is None:
            try:
                self._panel = Panel(self)
            except ImportError:
                return None
        return self._panel

    def still(self) -> str:
        """Return the state as HTML with still pictures, which needs neither kernel nor widget.

        Below them is the page of `save`, folded, for viewers that run scripts.
        """
        parts = [still_html(self.look, self.note)]
        with contextlib.suppress(TmaError):  # a map that the page does not have
            parts.append(embedded(self._page_state()))
        return fragment(parts)

    def __str__(self) -> str:
        parts = [str(self.look.report), self.look.refusal, self.note, self.look.stored_code]
        return "\n\n".join(filter(None, parts))

    def __repr__(self) -> str:
        return "<Explorer: a notebook shows it; save(FILE) writes it as a page>"

    _repr_html_ = still

    def _display_(self) -> Any:
        """Return what marimo shows: the live widget."""
        panel = self.panel
        return panel.widget if panel else importlib.import_module("marimo").Html(self.still())

    def _ipython_display_(self) -> None:
        """Show the live widget, and beside it a still picture for a saved notebook."""
        from IPython.display import display

        panel = self.panel
        if panel is None:
            hint = f"<p>{html.escape(HINT)}</p>"
            display({"text/html": hint + self.still(), "text/plain": str(self)}, raw=True)
        else:
            panel.display()


def _plain(value: Any) -> Any:
    """Return enum members by their names, and sequences as tuples."""
    name = getattr(value, "name", value)
    return tuple(name) if isinstance(name, (list, tuple)) else name


# --- The live widget ------------------------------------------------------------------------------


def front_end() -> str:
    """Return the JavaScript module: the linking of the figures, and the explorer's own."""
    own = ((HERE / name).read_text(encoding="utf-8") for name in ("controls.js", "explorer.js"))
    return "\n".join([script_source("linked.js"), *own])


def style_sheet() -> str:
    """Return the CSS: that of the figures and findings, and the explorer's own."""
    return CSS + (HERE / "explorer.css").read_text(encoding="utf-8")


def start_state(explorer: Explorer) -> dict[str, Any]:
    """Return what the front end begins with."""
    state = {"tabs": TABS, "controls": explorer.controls(), "page": True}
    return {**state, "view": explorer.answer({}), **explorer.legal()}


@cache
def _widget_class() -> Any:
    """Make the class; anywidget is imported here alone, with an ImportError where it is missing."""
    anywidget = importlib.import_module("anywidget")
    start = importlib.import_module("traitlets").Dict().tag(sync=True)
    about = "The live widget of an `Explorer`."
    body = {"_esm": front_end(), "_css": style_sheet(), "start": start, "__doc__": about}
    return type("ExplorerWidget", (anywidget.AnyWidget,), body)


_NUMBERS = itertools.count(1)


class Panel:
    """The live widget of an explorer, and the still picture of a saved notebook.

    `still_class` is the class of that picture, by which the live widget hides it: the same in each
    run of a notebook. Raises ImportError without anywidget.
    """

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._still: Any = None
        self.widget: Any = _widget_class()()
        code = zlib.crc32(explorer.choice.call().encode())
        self.still_class = f"tma-stored-{code:08x}-{next(_NUMBERS)}"
        self._start()
        self.widget.on_msg(self._hear)

    def _start(self) -> None:
        self.widget.start = {**start_state(self._explorer), "stored": self.still_class}

    def _hear(self, _: object, asked: Any, buffers: object) -> None:
        if not isinstance(asked, dict):
            return
        self.send(self._explorer.hear(asked))
        if asked.get("do") == "legal":  # sent when the user pauses: store the state
            self._start()
            if self._still is not None:
                self._still.update(self._bundle(), raw=True)

    def send(self, answer: dict[str, Any]) -> None:
        """Send what has changed to every view."""
        self.widget.send(answer)

    def _bundle(self) -> dict[str, str]:
        # Without its kernel JupyterLab shows words for the widget: an output without elements.
        own = f".jp-OutputArea-child:has(+ * .{self.still_class})"
        lost = f"{own} .jupyter-widgets:not(:has(*))"
        style = f"<style>{lost}{{display:none}}</style>"
        html = f'<div class="{self.still_class}">{style}{self._explorer.still()}</div>'
        return {"text/html": html, "text/plain": str(self._explorer)}

    def display(self) -> None:
        """Show the widget, and the still picture that is hidden while the widget is live."""
        from IPython.display import display

        bundle = self.widget._repr_mimebundle_()
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        if live:
            display({**live, "text/plain": LIVE_TEXT}, raw=True)
        self._still = display(self._bundle(), raw=True, display_id=True)
